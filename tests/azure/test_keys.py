"""Keys keep Azure's rules whatever they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.azure import keys


@given(st.text(min_size=1, max_size=200))
def test_any_text_becomes_a_part_of_a_key(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # Half a surrogate pair, which no message can carry.
    part = keys.part(text)
    assert keys.key_fault(part) is None
    assert keys.SEPARATOR not in part
    assert "'" not in part
    assert keys.decoded(keys.encoded(text)) == text
    assert keys.key_fault(keys.key("HELD", part, part, "x" * 60)) is None
    if len(keys.encoded(text)) <= keys.PART_CHARS_MAX:
        assert part == keys.encoded(text)
    else:
        assert keys.part(text + "x") != part
        assert keys.part(part) != part


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_instants_sort_as_text(one: int, other: int) -> None:
    assert (keys.instant(one) < keys.instant(other)) == (one < other)
    assert (keys.instant_descending(one) < keys.instant_descending(other)) == (one > other)


def test_a_prefix_ends_behind_all_its_keys() -> None:
    assert "JOB:" < "JOB:~" < keys.prefix_end("JOB")
    assert not "JOB:" <= "JOBS:1" < keys.prefix_end("JOB")


@pytest.mark.parametrize(
    "text", ["", "a/b", "a\\b", "a#b", "a?b", "a\tb", "a\x85b", "x" * 513, "\N{GRINNING FACE}" * 257]
)
def test_a_key_that_azure_forbids_is_refused(text: str) -> None:
    assert keys.key_fault(text) is not None
    with pytest.raises(ValueError, match="cannot be a key"):
        keys.key(text)
