"""The machine of bulk operations: every state with every move, and the way through it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lucius.domain.bulk_operation import (
    APPLIES_TO,
    BULK_TERMINAL,
    BULK_TRANSITIONS,
    EVENTS_MAX,
    UNLESS_NAMED,
    BulkAction,
    BulkFilter,
    BulkMove,
    BulkOperation,
    BulkStatus,
    Counts,
    ItemStatus,
    moved,
    next_move,
    sentence,
    settled,
)


def operation(status: BulkStatus = BulkStatus.SELECTING, **fields: object) -> BulkOperation:
    plain = BulkOperation(
        operation_id="019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a", action=BulkAction.REDRIVE, filter=BulkFilter(),
        by="key:ops", reason="fixed", rate_per_second=10.0, created_at=0, updated_at=0,
    )  # fmt: skip
    return replace(plain, status=status, **fields)


@pytest.mark.parametrize(("status", "move"), list(product(BulkStatus, BulkMove)))
def test_every_move_leads_where_the_table_says_or_nowhere(status: BulkStatus, move: BulkMove) -> None:
    if (status, move) not in BULK_TRANSITIONS:
        with pytest.raises(KeyError):
            moved(operation(status), move, 5)
        return
    after = moved(operation(status), move, 5)
    assert after.status is BULK_TRANSITIONS[status, move]
    assert (after.ended_at == 5) is (after.status in BULK_TERMINAL)


def test_terminal_states_have_no_way_out_and_every_other_can_be_abandoned() -> None:
    for status in BulkStatus:
        ways = {move for state, move in BULK_TRANSITIONS if state is status}
        assert (not ways) is (status in BULK_TERMINAL)
        assert (BulkMove.ABANDONED in ways) is (status not in BULK_TERMINAL)


def test_operation_without_jobs_completes_at_once() -> None:
    assert settled(operation(is_selected=True), 5).status is BulkStatus.COMPLETED


def test_canary_waits_for_its_outcomes_and_goes_on_if_few_enough_fail() -> None:
    one = settled(operation(is_selected=True, canary=3, canary_max_failures=1, counts=Counts(pending=10)), 1)
    assert (one.status, one.act_max) == (BulkStatus.CANARY, 3)
    one = settled(replace(one, counts=Counts(pending=7, started=2, failed=1)), 2)
    assert (one.status, one.act_max) == (BulkStatus.CANARY, 0)
    one = settled(replace(one, counts=Counts(pending=7, succeeded=2, failed=1)), 3)
    assert (one.status, one.act_max) == (BulkStatus.RUNNING, 7)
    assert [event.type for event in one.events] == ["CANARY_PASSED"]


def test_canary_replaces_jobs_that_were_skipped() -> None:
    one = operation(BulkStatus.CANARY, is_selected=True, canary=3, counts=Counts(pending=7, skipped=2, started=1))
    assert one.act_max == 2


def test_canary_stops_as_soon_as_too_many_fail_and_goes_on_if_somebody_resumes_it() -> None:
    counts = Counts(pending=7, started=2, failed=1)
    one = settled(operation(BulkStatus.CANARY, is_selected=True, canary=3, counts=counts), 2)
    assert (one.status, one.act_max, one.is_active) == (BulkStatus.STOPPED, 0, True)
    one = settled(moved(one, BulkMove.RESUMED, 3, "key:ops", "go on"), 3)
    assert one.status is BulkStatus.CANARY
    one = settled(replace(one, counts=Counts(pending=7, succeeded=2, failed=1)), 4)
    assert one.status is BulkStatus.RUNNING
    assert [(event.type, event.by, event.reason) for event in one.events] == [
        ("FAILED", None, None), ("RESUMED", "key:ops", "go on"), ("CANARY_PASSED", None, None),
    ]  # fmt: skip


def test_rest_stops_at_its_own_threshold() -> None:
    one = operation(BulkStatus.RUNNING, is_selected=True, max_failures=2, counts=Counts(pending=7, failed=2))
    assert settled(one, 2).status is BulkStatus.RUNNING
    assert settled(replace(one, counts=Counts(pending=6, failed=3)), 2).status is BulkStatus.STOPPED
    assert settled(replace(one, counts=Counts(failed=10)), 2).status is BulkStatus.COMPLETED


def test_redrives_are_finished_once_the_new_jobs_have_ended() -> None:
    one = settled(operation(BulkStatus.RUNNING, counts=Counts(started=2, succeeded=8)), 2)
    assert (one.status, one.is_active) == (BulkStatus.FINISHING, True)
    assert settled(replace(one, counts=Counts(succeeded=10)), 2).status is BulkStatus.COMPLETED


@given(
    st.sampled_from(BulkStatus), st.booleans(), st.integers(0, 3), st.lists(st.integers(0, 5), min_size=5, max_size=5)
)
def test_settled_settles(status: BulkStatus, is_selected: bool, canary: int, numbers: list[int]) -> None:
    counts = Counts(**dict(zip(Counts.__struct_fields__, numbers, strict=True)))
    once = settled(operation(status, is_selected=is_selected, canary=canary, max_failures=2, counts=counts), 7)
    assert settled(once, 7) == once
    assert next_move(once) is None
    assert sentence(once)


def test_counts_move_one_item() -> None:
    counts = Counts(pending=2).moved(ItemStatus.PENDING, ItemStatus.STARTED)
    assert counts == Counts(pending=1, started=1)
    assert counts.moved(ItemStatus.PENDING, ItemStatus.PENDING) == counts
    assert counts.moved(None, ItemStatus.PENDING).total == 3


def test_actions_select_only_jobs_that_they_apply_to() -> None:
    for action in BulkAction:
        assert set(UNLESS_NAMED[action]) <= set(APPLIES_TO[action])


def test_trail_is_bounded_and_keeps_its_beginning() -> None:
    one = moved(operation(), BulkMove.PAUSED, 0, "first")
    for at in range(1, 2 * EVENTS_MAX):
        one = moved(moved(one, BulkMove.RESUMED, at, "again"), BulkMove.PAUSED, at, "again")
    assert len(one.events) == EVENTS_MAX
    assert one.events[0].by == "first"


@pytest.mark.parametrize(
    ("tenants", "caller", "visible"),
    [(None, None, True), (None, {"acme"}, False), (("acme",), {"acme"}, True), (("acme", "b"), {"acme"}, False)],
)
def test_operation_is_visible_to_whoever_sees_all_its_tenants(
    tenants: tuple[str, ...] | None, caller: set[str] | None, visible: bool
) -> None:
    one = operation(filter=BulkFilter(tenants=tenants))
    assert one.is_visible_to(None if caller is None else frozenset(caller)) is visible
