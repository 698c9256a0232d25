"""Who is served when: floods in turn, newcomers before them, and nobody twice before the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lucius.buses.tenant_turns import TenantTurns


def turns_of(*floods: str, messages: int = 20) -> TenantTurns[str]:
    turns: TenantTurns[str] = TenantTurns(lambda message: True)
    for flood in floods:
        for _ in range(messages):
            turns.add(flood, flood)
    return turns


def taken(turns: TenantTurns[str], count: int) -> str:
    return "".join(turns.next() or "-" for _ in range(count))


def test_newcomer_goes_before_floods() -> None:
    turns = turns_of("a", "b", "c")
    assert taken(turns, 4) == "abca"
    turns.add("x", "x")
    assert taken(turns, 4) == "xbca"


def test_newcomer_with_more_than_one_message_takes_turns_with_the_rest() -> None:
    turns = turns_of("a", "b")
    assert taken(turns, 2) == "ab"
    for _ in range(3):
        turns.add("x", "x")
    assert taken(turns, 7) == "xabxabx"


def test_whoever_comes_back_within_a_round_waits_for_it_to_end() -> None:
    turns = turns_of("a", "b")
    assert taken(turns, 2) == "ab"
    order = ""
    for _ in range(12):
        if "x" not in list(turns):
            turns.add("x", "x")
        order += taken(turns, 1)
    assert order == "xabxabxabxab"


def test_message_that_has_left_costs_no_turn() -> None:
    gone = {"x"}
    turns: TenantTurns[str] = TenantTurns(lambda message: message not in gone)
    for name in ("a", "x", "b"):
        turns.add(name, name)
    assert taken(turns, 3) == "ab-"
    assert not list(turns)


ACTS = st.lists(st.one_of(st.none(), st.sampled_from("abcd")), max_size=80)


@given(ACTS)
def test_nobody_who_waits_is_passed_over_more_than_twice_by_another(acts: list[str | None]) -> None:
    """Whatever comes in whatever order: once while it is new, and once in turn."""
    turns: TenantTurns[str] = TenantTurns(lambda message: True)
    waiting: dict[str, int] = {}
    passed: dict[str, dict[str, int]] = {}
    for act in [*acts, *[None] * len(acts)]:
        if act is not None:
            turns.add(act, act)
            waiting[act] = waiting.get(act, 0) + 1
            passed.setdefault(act, {})
            continue
        found = turns.next()
        assert (found is None) == (not any(waiting.values()))
        if found is None:
            continue
        waiting[found] -= 1
        passed[found] = {}
        for tenant, by in passed.items():
            if tenant != found and waiting[tenant]:
                by[found] = by.get(found, 0) + 1
                assert by[found] <= 2, (tenant, found)
