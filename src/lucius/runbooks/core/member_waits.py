"""What a member waits for, in plain sentences. Pure: takes the state of the tables, returns sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.approvals import Decision
from lucius.runbooks.core.dead_messages import NONE_DEAD, DeadMessages, explain
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.execution_waits import Absent, clipped, execution_waits, missing, nobody_absent
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.phase_waits import phase_begins
from lucius.runbooks.core.records import Absence, Batch, Phase
from lucius.runbooks.core.states import (
    ACTIVE,
    BATCH_ENDED,
    FAILURES,
    PENDING,
    POLLING,
)


class MemberState(Struct, frozen=True, kw_only=True):
    batch: Batch
    runbook: Runbook
    automation: bool
    member_id: int
    is_active: bool
    has_failed: bool
    absence: Absence | None
    """Set if the member is missing from its source."""
    steps: Sequence[Execution]
    """In the order of phases and steps."""
    followups: Sequence[Execution]
    phases: Mapping[int, Phase]
    barriers: Mapping[int, tuple[str, int]]
    """By phase: the name of the step at its barrier, and how many members have not ended it."""
    retries: Mapping[int, int]
    """By step id: its maximum number of retries."""
    held_for: Instant | None = None
    """The date that the source has moved it to, while nobody has decided about that."""
    dead: DeadMessages = NONE_DEAD
    decisions: Sequence[Decision] = ()
    """About phases that need approval."""
    now: Instant
    wait: Wait | None = None
    """Why its batch sends nothing new."""
    absent: Absent = nobody_absent


def member_waits(state: MemberState) -> str | None:
    """None if it waits for nothing: it has finished, or its batch has ended."""
    waits = _with_pause(state, _with_hold(state, _member_waits(state)))
    if state.absence is None or state.batch.status in BATCH_ENDED:
        return waits
    absent = f"it is {missing(state.absence)}"
    return absent if waits is None else f"{waits}; {absent}"


def _with_pause(state: MemberState, waits: str | None) -> str | None:
    """What a worker has begun goes on; nothing else does."""
    if waits is None or not state.batch.is_paused:
        return waits
    runs = any(one.is_open and (one.in_flight or one.status == POLLING) for one in [*state.steps, *state.followups])
    paused = f"its batch is {state.batch.pause_reason}"
    return f"{waits}; {paused}" if runs else paused


def _with_hold(state: MemberState, waits: str | None) -> str | None:
    """A step that was sent goes on; nothing else does."""
    if state.held_for is None or not state.is_active or state.batch.status in BATCH_ENDED:
        return waits
    held = (
        f"held: the source has moved it from {utc(state.batch.start)} to {utc(state.held_for)} after steps of it were"
        " sent; confirm the move or keep it in this batch"
    )
    runs = any(one.is_open and (one.status != PENDING) for one in [*state.steps, *state.followups])
    return f"{waits}; {held}" if runs else held


def _member_waits(state: MemberState) -> str | None:
    change = state.dead.of_member(state.member_id)
    if change is not None:
        return explain(change)
    chain = next((one for one in state.followups if one.is_open), None)
    if chain is not None:
        return _chain(state, chain)
    if not state.is_active:
        return None
    head = next((one for one in state.steps if one.is_open), None)
    if head is not None:
        return _head(state, head)
    if state.has_failed:
        failed = next((one for one in reversed(state.steps) if one.status in FAILURES), None)
        if failed is not None:
            return f"failed at step {failed.step_name}: {clipped(failed.error_message)}; retry it or remove it"
    if state.batch.status in BATCH_ENDED:
        return None
    if state.batch.held_at is not None:
        return f"its batch is held: {state.batch.hold_reason}"
    if state.batch.status != ACTIVE:
        return "its batch's init has not ended"
    return _next_phase_of(state)


def _chain(state: MemberState, one: Execution) -> str:
    dead = state.dead.of_execution(one)
    if dead is not None:
        return explain(dead)
    name = f"{one.kind} {execution_waits(one, None, absent=state.absent, wait=state.wait)}"
    if one.in_flight or one.ready or one.retry_at is not None or one.status == POLLING:
        return name
    if one.kind == "removal" and any(step.in_flight for step in state.steps):
        return f"removal step {one.step_name} waits for a result in flight"
    if one.kind == "removal" and any(other.kind == "rollback" and other.is_open for other in state.followups):
        return f"removal step {one.step_name} waits for a running rollback"
    return f"{one.kind} step {one.step_name} is about to be sent"


def _head(state: MemberState, head: Execution) -> str:
    phase = state.phases.get(head.phase_id or 0)
    dead = state.dead.of_execution(head) or state.dead.of_phase(head.phase_id or 0)
    if dead is not None:
        return explain(dead)
    if head.status != PENDING or head.ready:
        retries = state.retries.get(head.id)
        return execution_waits(head, state.runbook.max_parallel, retries, state.absent, state.wait)
    if phase is None or phase.status == PENDING:
        return f"step {head.step_name} waits for its phase to begin"
    at_barrier = state.barriers.get(phase.id)
    if at_barrier is not None and at_barrier[1] and phase.barrier_index is not None:
        step, count = at_barrier
        if head.step_index > phase.barrier_index:
            who = "1 member has" if count == 1 else f"{count} members have"
            return f"waits at the barrier: {who} not ended step {step}"
    return f"step {head.step_name} is about to be sent"


def _next_phase_of(state: MemberState) -> str | None:
    pending = next((phase for phase in state.phases.values() if phase.status == PENDING), None)
    if pending is None:
        return None
    if state.batch.advance == "manual":
        return f"phase {pending.name} starts manually: advance the batch"
    every = sorted(state.phases.values(), key=lambda phase: phase.id)
    off = "" if state.automation else ", and automation is off"
    return f"{phase_begins(pending, state.runbook, state.batch, every, state.decisions, state.now)}{off}"
