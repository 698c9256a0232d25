"""The JSON Schema: it describes every key, takes what reading takes, and says the same as the code beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest
import yaml
from definition_samples import MIGRATION, VALID
from hypothesis import given, settings
from hypothesis import strategies as st

from lucius.runbooks.core.definition.durations import DURATION_ADVICE, OFFSET_ADVICE, parse_duration, parse_offset
from lucius.runbooks.core.definition.names import NAME_ADVICE, check_name
from lucius.runbooks.core.definition.query import QUERY_CHARS_MAX
from lucius.runbooks.core.definition.schema import ERRORS_MAX, runbook_schema, schema_bytes, shape_faults
from lucius.yaml_text import read_yaml

SCHEMA = runbook_schema()
DURATION = SCHEMA["$defs"]["duration"]
OFFSET = SCHEMA["properties"]["phases"]["items"]["properties"]["offset"]
NAME = SCHEMA["properties"]["name"]


@pytest.mark.parametrize("text", VALID.values(), ids=[*VALID])
def test_right_runbook_passes_the_schema(text: str) -> None:
    assert shape_faults(read_yaml(text.encode()).value) == []
    assert jsonschema_rs.Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text)), "editors read YAML their own way"


def test_schema_is_a_schema() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    assert schema_bytes().startswith(b"{")


def _properties(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that a runbook may have; the conditions only repeat keys that stand above them."""
    if isinstance(schema, dict):
        for name, member in schema.items():
            if name == "properties":
                yield from ((f"{place}/{key}", value) for key, value in member.items())
            if name not in ("allOf", "lastSteps"):
                yield from _properties(member, f"{place}/{name}")


def test_every_key_is_described() -> None:
    found = dict(_properties(SCHEMA))
    assert len(found) > 35
    assert [place for place, schema in found.items() if not schema.get("description", "").endswith(".")] == []


def test_every_key_of_a_full_runbook_is_in_the_schema_and_the_other_way_round() -> None:
    known = {place.rpartition("/")[2] for place, _ in _properties(SCHEMA)}
    used: set[str] = set()

    def gather(value: Any) -> None:
        for key, member in value.items() if isinstance(value, dict) else ():
            used.add(key)
            if key not in ("params", "output_params"):
                gather(member)
        for item in value if isinstance(value, list) else ():
            gather(item)

    gather(yaml.safe_load(MIGRATION))
    assert used - known == {"undo"}
    assert known - used == {"batch_time"}


def test_words_and_limits_are_those_of_the_code() -> None:
    assert (DURATION["errorMessage"], OFFSET["errorMessage"], NAME["errorMessage"]) == (
        DURATION_ADVICE,
        OFFSET_ADVICE,
        NAME_ADVICE,
    )
    assert SCHEMA["properties"]["data_source"]["properties"]["query"]["maxLength"] == QUERY_CHARS_MAX


_near = (
    st.from_regex(r"T?[-+]?[0-9]{0,3}[smhdw]?", fullmatch=True)
    | st.text(max_size=6)
    | st.text("Aa1 _-.\n", max_size=42)
)


@settings(deadline=None)
@given(_near, st.sampled_from([(DURATION, parse_duration), (OFFSET, parse_offset), (NAME, check_name)]))
def test_patterns_refuse_what_the_code_refuses(text: str, pair: tuple[dict[str, Any], Callable[[str], Any]]) -> None:
    schema, parse = pair
    try:
        parse(text)
    except ValueError as error:
        taken = "too " in str(error)
    else:
        taken = True
    # What is too long or too far is a number's matter, which a pattern leaves to the reader.
    assert jsonschema_rs.is_valid(schema, text) == taken


def test_errors_have_a_limit() -> None:
    document = yaml.safe_load(MIGRATION)
    document["init"] = [5] * (ERRORS_MAX * 2)
    assert len(shape_faults(document)) == ERRORS_MAX
