"""What a batch or a member waits for, in plain sentences. Pure: what the tables say goes in, sentences come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from lucius.domain.time import Instant, after, iso
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.execution import Execution
from lucius.runbooks.states import (
    ACTIVE,
    BATCH_ENDED,
    DETECTED,
    DISPATCHED,
    FAILURES,
    INIT_DISPATCHED,
    PENDING,
    POLLING,
)
from lucius.runbooks.tables.batches import Batch, Phase

ERROR_SHOWN_CHARS = 200


class StepCount(Struct, frozen=True):
    """How many steps of one place in a phase are in one and the same state."""

    phase_id: int
    step_index: int
    step_name: str
    status: str
    in_flight: bool
    ready: bool
    count: int


class BatchState(Struct, frozen=True, kw_only=True):
    batch: Batch
    runbook: Runbook
    automation: bool
    init: Sequence[Execution]
    phases: Sequence[Phase]
    counts: Sequence[StepCount]
    followups: Sequence[tuple[str, bool, int]]
    """Open ones: kind, whether a worker has them, how many."""
    now: Instant


# --- Batches ---------------------------------------------------------------------------------------------------------


def batch_waits(state: BatchState) -> list[str]:
    """Never empty: a batch that has ended says so."""
    batch = state.batch
    found = [*_running_phases(state), *_chains(state)]
    if batch.status in BATCH_ENDED:
        return [*found, "nothing: it has ended"]
    if batch.held_at is not None:
        found.append(f"held: {batch.hold_reason}; resume it or cancel it")
    if batch.status == DETECTED:
        found.append("its members are still being put in")
    elif batch.status == INIT_DISPATCHED:
        found.append(_init(state))
    else:
        found += _next_phase(state)
    return found or ["nothing: the next look at its tables ends it"]


def _init(state: BatchState) -> str:
    chain = [one for one in state.init if one.version == state.batch.version]
    current = next((one for one in chain if one.is_open), None)
    return "init is about to begin" if current is None else f"init {execution_waits(current, None, state.now)}"


def _running_phases(state: BatchState) -> list[str]:
    return [_running(state, phase) for phase in state.phases if phase.status == DISPATCHED]


def _running(state: BatchState, phase: Phase) -> str:
    counts = [one for one in state.counts if one.phase_id == phase.id]
    open_ = [one for one in counts if one.status in (PENDING, DISPATCHED, POLLING)]
    if not open_:
        return f"phase {phase.name}: the last rollbacks of its members have not ended"
    lowest = min(open_, key=lambda one: one.step_index)
    steps_max = max(one.step_index for one in counts) + 1
    place = f"phase {phase.name} is at step {lowest.step_index + 1} of {steps_max} ({lowest.step_name})"
    parts = _parts(open_, state.runbook.max_parallel)
    return f"{place}: {', '.join(parts)}" if parts else f"{place}: its steps are about to be sent"


def _parts(open_: Sequence[StepCount], max_parallel: int | None) -> list[str]:
    with_workers = sum(one.count for one in open_ if one.in_flight)
    polling = sum(one.count for one in open_ if one.status == POLLING and not one.in_flight and not one.ready)
    slots = sum(one.count for one in open_ if one.ready)
    retrying = sum(one.count for one in open_ if one.status == DISPATCHED and not one.in_flight and not one.ready)
    slot = f" for a free slot (max_parallel {max_parallel})" if max_parallel else " to be sent"
    sizes = (
        (with_workers, "is with a worker", "are with workers"),
        (polling, "polls", "poll"),
        (slots, f"waits{slot}", f"wait{slot}"),
        (retrying, "waits to be tried again", "wait to be tried again"),
    )
    found = [(count, one if count == 1 else many) for count, one, many in sizes if count]
    nouns = ["step" if count == 1 else "steps" for count, _ in found[:1]] + [""] * len(found)
    return [f"{count} {noun} {what}".replace("  ", " ") for (count, what), noun in zip(found, nouns, strict=False)]


def _chains(state: BatchState) -> list[str]:
    found = []
    for kind in dict.fromkeys(kind for kind, _, _ in state.followups):
        out = sum(count for name, in_flight, count in state.followups if name == kind and in_flight)
        waiting = sum(count for name, in_flight, count in state.followups if name == kind and not in_flight)
        found.append(f"{kind} steps: {out} with workers, {waiting} waiting for their turn")
    return found


def _next_phase(state: BatchState) -> list[str]:
    pending = next((phase for phase in state.phases if phase.status == PENDING), None)
    if pending is None:
        return []
    if state.batch.advance == "manual":
        return [f"phase {pending.name} is begun by hand: advance the batch"]
    if state.batch.held_at is not None:
        return []
    due = f"phase {pending.name} is due at {iso(pending.due_at)}"
    if not state.automation:
        return [due, f"automation is off for runbook {state.batch.runbook_name}: start it again"]
    return [due if pending.due_at > state.now else f"{due}: the scheduler begins it at its next round"]


# --- One execution ---------------------------------------------------------------------------------------------------


def execution_waits(one: Execution, max_parallel: int | None, now: Instant, retries_max: int | None = None) -> str:
    """What an open execution waits for."""
    head = f"step {one.step_name}"
    deadline = "" if one.poll_deadline is None else f", gives up at {iso(one.poll_deadline)}"
    if one.in_flight:
        since = one.last_polled_at if one.status == POLLING else one.dispatched_at
        until = "" if one.timeout_at is None else f", times out at {iso(one.timeout_at)}"
        told = "" if since is None else f" since {iso(since)}"
        return f"{head} is with worker {one.worker_id}{told}{until}"
    if one.retry_at is not None:
        used = f"{one.retries_used} of {retries_max} used" if retries_max else f"{one.retries_used} used"
        return f"{head} retries at {iso(one.retry_at)} ({used}): last error {_clipped(one.error_message)}"
    if one.ready:
        slot = f" (max_parallel {max_parallel})" if max_parallel else ""
        return f"{head} waits for a free slot{slot}"
    if one.status == POLLING and one.last_polled_at is not None and one.poll_interval_sec is not None:
        again = after(one.last_polled_at, one.poll_interval_sec)
        return f"{head} polls again at {iso(again)}{deadline}"
    return f"{head} waits for the step before it"


def _clipped(text: str | None) -> str:
    shown = " ".join((text or "none").split())
    return shown if len(shown) <= ERROR_SHOWN_CHARS else shown[:ERROR_SHOWN_CHARS] + "…"


# --- Members ---------------------------------------------------------------------------------------------------------


class MemberState(Struct, frozen=True, kw_only=True):
    batch: Batch
    runbook: Runbook
    automation: bool
    is_active: bool
    has_failed: bool
    steps: Sequence[Execution]
    """In the order of phases and steps."""
    followups: Sequence[Execution]
    phases: Mapping[int, Phase]
    barriers: Mapping[int, tuple[str, int]]
    """Of a phase: the name of the step at its barrier, and how many members have not ended it."""
    retries: Mapping[int, int]
    """Of a step, by its id: how many retries it may have."""
    now: Instant


def member_waits(state: MemberState) -> str | None:
    """None if it waits for nothing: it has gone all the way, or its batch has ended."""
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
            return f"failed at step {failed.step_name}: {_clipped(failed.error_message)}; retry it or remove it"
    if state.batch.status in BATCH_ENDED:
        return None
    if state.batch.held_at is not None:
        return f"its batch is held: {state.batch.hold_reason}"
    if state.batch.status != ACTIVE:
        return "its batch's init has not ended"
    return _next_phase_of(state)


def _chain(state: MemberState, one: Execution) -> str:
    name = f"{one.kind} {execution_waits(one, None, state.now)}"
    if one.in_flight or one.ready or one.retry_at is not None or one.status == POLLING:
        return name
    if one.kind == "removal" and any(step.in_flight for step in state.steps):
        return f"removal step {one.step_name} waits for a result in flight"
    if one.kind == "removal" and any(other.kind == "rollback" and other.is_open for other in state.followups):
        return f"removal step {one.step_name} waits for a rollback that runs"
    return f"{one.kind} step {one.step_name} is about to be sent"


def _head(state: MemberState, head: Execution) -> str:
    phase = state.phases.get(head.phase_id or 0)
    if head.status != PENDING or head.ready:
        return execution_waits(head, state.runbook.max_parallel, state.now, state.retries.get(head.id))
    if phase is None or phase.status == PENDING:
        return f"step {head.step_name} waits for its phase to begin"
    at_barrier = state.barriers.get(phase.id)
    if at_barrier is not None and at_barrier[1] and phase.barrier_index is not None:
        step, count = at_barrier
        if head.step_index > phase.barrier_index:
            whom = "1 member has" if count == 1 else f"{count} members have"
            return f"waits at the barrier: {whom} not ended step {step}"
    return f"step {head.step_name} is about to be sent"


def _next_phase_of(state: MemberState) -> str | None:
    pending = next((phase for phase in state.phases.values() if phase.status == PENDING), None)
    if pending is None:
        return None
    if state.batch.advance == "manual":
        return f"phase {pending.name} is begun by hand: advance the batch"
    off = "" if state.automation else ", and automation is off"
    return f"phase {pending.name} is due at {iso(pending.due_at)}{off}"
