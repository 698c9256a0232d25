"""What a batch waits for, in plain sentences. Pure: takes the state of the tables, returns sentences."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant, iso
from lucius.runbooks.core.approvals import Decision
from lucius.runbooks.core.dead_messages import NONE_DEAD, DeadMessages
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.execution_waits import Absent, execution_waits, missing, nobody_absent
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.phase_waits import phase_begins
from lucius.runbooks.core.records import FAILED as SOURCE_FAILED
from lucius.runbooks.core.records import FROM_SOURCE, HELD, OK, Absence, Batch, Phase
from lucius.runbooks.core.start_rules import phase_wait, sending_wait
from lucius.runbooks.core.states import (
    BATCH_ENDED,
    DETECTED,
    DISPATCHED,
    INIT_DISPATCHED,
    OPEN_STATUSES,
    PENDING,
    POLLING,
    Kind,
)

_TROUBLES = {SOURCE_FAILED: "could not be read", HELD: "is held"}
NAMED_MAX = 5
"""Members named in a sentence."""


class StepCount(Struct, frozen=True):
    """How many steps at one position of a phase are in the same state."""

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
    followups: Sequence[tuple[Kind, bool, int]]
    """Open chains: kind, whether a worker has them, count."""
    missing: tuple[int, Absence] | None
    """How many members are missing from the source, and the earliest times of any of them."""
    held_count: int = 0
    held: Sequence[tuple[str, Instant]] = ()
    """The first members that are held because the source moved them, and the dates it has for them."""
    source_state: str = OK
    """Outcome of the last reading of its runbook's source, and why."""
    source_detail: str | None = None
    dead: DeadMessages = NONE_DEAD
    decisions: Sequence[Decision] = ()
    """About phases that need approval."""
    now: Instant
    absent: Absent = nobody_absent

    @property
    def wait(self) -> Wait | None:
        """Why nothing new is sent."""
        return sending_wait(self.runbook, self.now)


def batch_waits(state: BatchState) -> list[str]:
    """Never empty, even for a batch that has ended."""
    batch = state.batch
    if batch.is_cancelling:
        return [_cancelling(state), *_chains(state), *state.dead.sentences()]
    found = [*_running_phases(state), *_chains(state), *state.dead.sentences()]
    if batch.status in BATCH_ENDED:
        return [*found, "nothing: it has ended"]
    if batch.held_at is not None:
        found.append(f"held: {batch.hold_reason}; resume it or cancel it")
    if batch.is_paused:
        found.append(f"{batch.pause_reason}; resume it or cancel it")
    if batch.status == DETECTED:
        found.append("its members are still being added")
    elif batch.status == INIT_DISPATCHED:
        found += _init(state)
    else:
        found += _next_phase(state)
    if state.missing is not None:
        count, absence = state.missing
        who = "1 member is" if count == 1 else f"{count} members are"
        found.append(f"{who} {missing(absence)}")
    found += _held(state)
    found += _source(state)
    return found or ["nothing: the next sweep ends it"]


def _cancelling(state: BatchState) -> str:
    open_ = [one for one in state.counts if one.status in OPEN_STATUSES]
    waiting, sent = (sum(one.count for one in open_ if one.in_flight is in_flight) for in_flight in (False, True))
    return f"cancelling: {waiting} steps are not cancelled yet; {sent} are with workers, whose answers end them"


def _source(state: BatchState) -> list[str]:
    """While its source is failed or held, no member joins or leaves."""
    if state.batch.origin != FROM_SOURCE or state.source_state not in _TROUBLES or not state.automation:
        return []
    trouble = _TROUBLES[state.source_state]
    return [f"the source of runbook {state.batch.runbook_name} {trouble}: {state.source_detail}"]


def _held(state: BatchState) -> list[str]:
    if not state.held_count:
        return []
    named = [f"{key} to {utc(to)}" for key, to in state.held]
    more = state.held_count - len(named)
    who = "1 member is" if state.held_count == 1 else f"{state.held_count} members are"
    them = "it" if state.held_count == 1 else "them"
    listed = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    return [
        f"{who} held because the source has moved {them} to another date: {listed}; confirm the move or keep {them} in"
        " this batch"
    ]


def _init(state: BatchState) -> list[str]:
    """Empty if a dead message already explains it."""
    chain = [one for one in state.init if one.version == state.batch.version]
    current = next((one for one in chain if one.is_open), None)
    if state.dead.of_init() is not None or (current is not None and state.dead.of_execution(current) is not None):
        return []
    return [
        "init is about to begin"
        if current is None
        else f"init {execution_waits(current, None, absent=state.absent, wait=state.wait)}"
    ]


def _running_phases(state: BatchState) -> list[str]:
    return [_running(state, phase) for phase in state.phases if phase.status == DISPATCHED]


def _running(state: BatchState, phase: Phase) -> str:
    if state.dead.of_phase(phase.id) is not None:
        return f"phase {phase.name} has not begun: its message is dead"
    counts = [one for one in state.counts if one.phase_id == phase.id]
    open_ = [one for one in counts if one.status in (PENDING, DISPATCHED, POLLING)]
    if not open_:
        return f"phase {phase.name}: the last rollbacks of its members have not ended"
    lowest = min(open_, key=lambda one: one.step_index)
    steps_max = max(one.step_index for one in counts) + 1
    place = f"phase {phase.name} is at step {lowest.step_index + 1} of {steps_max} ({lowest.step_name})"
    parts = _parts(open_, state, state.dead.in_flight("step", phase.id))
    absent = "".join(f"; {sentence}" for sentence in _absent_workers(state, phase, open_))
    return f"{place}: {', '.join(parts)}{absent}" if parts else f"{place}: its steps are about to be sent"


def _absent_workers(state: BatchState, phase: Phase, open_: Sequence[StepCount]) -> list[str]:
    """About the workers of the steps that were sent, if the phase is of the batch's own version."""
    if phase.version != state.batch.version:
        return []
    defined = state.runbook.phase(phase.name).steps
    sent = sorted({one.step_index for one in open_ if one.in_flight and one.step_index < len(defined)})
    workers = dict.fromkeys(defined[index].worker_id for index in sent)
    return [sentence for worker_id in workers if (sentence := state.absent(worker_id)) is not None]


def _parts(open_: Sequence[StepCount], state: BatchState, dead: int) -> list[str]:
    max_parallel, wait = state.runbook.max_parallel, state.wait
    with_workers = sum(one.count for one in open_ if one.in_flight) - dead
    polling = sum(one.count for one in open_ if one.status == POLLING and not one.in_flight and not one.ready)
    kept = sum(one.count for one in open_ if one.ready and one.status != POLLING) if wait else 0
    slots = sum(one.count for one in open_ if one.ready) - kept
    retrying = sum(one.count for one in open_ if one.status == DISPATCHED and not one.in_flight and not one.ready)
    slot = f" for a free slot (max_parallel {max_parallel})" if max_parallel else " to be sent"
    if state.batch.is_paused:
        slot = " for the batch to be resumed"
    until = f" until {iso(wait.until_at)}: {wait.because}" if wait else ""
    sizes = (
        (with_workers, "is with a worker", "are with workers"),
        (dead, "waits for a dead message", "wait for dead messages"),
        (polling, "polls", "poll"),
        (slots, f"waits{slot}", f"wait{slot}"),
        (kept, f"waits{until}", f"wait{until}"),
        (retrying, "waits for a retry", "wait for a retry"),
    )
    found = [(count, one if count == 1 else many) for count, one, many in sizes if count]
    nouns = ["step" if count == 1 else "steps" for count, _ in found[:1]] + [""] * len(found)
    return [f"{count} {noun} {what}".replace("  ", " ") for (count, what), noun in zip(found, nouns, strict=False)]


def _chains(state: BatchState) -> list[str]:
    found = []
    for kind in dict.fromkeys(kind for kind, _, _ in state.followups):
        dead = state.dead.in_flight(kind)
        out = sum(count for name, in_flight, count in state.followups if name == kind and in_flight) - dead
        waiting = sum(count for name, in_flight, count in state.followups if name == kind and not in_flight)
        lost = f", {dead} waiting for dead messages" if dead else ""
        found.append(f"{kind} steps: {out} with workers{lost}, {waiting} waiting for their turn")
    return found


def _next_phase(state: BatchState) -> list[str]:
    pending = next((phase for phase in state.phases if phase.status == PENDING), None)
    if pending is None:
        return []
    if state.batch.advance == "manual":
        return [f"phase {pending.name} starts manually: advance the batch"]
    if state.batch.held_at is not None:
        return []
    if state.batch.is_paused:
        return [f"phase {pending.name} is due at {iso(pending.due_at)}, and waits for the batch to be resumed"]
    place = (state.batch, state.phases, state.decisions, state.now)
    due = phase_begins(pending, state.runbook, *place)
    if not state.automation:
        return [due, f"automation is off for runbook {state.batch.runbook_name}: start it again"]
    wait = phase_wait(state.runbook, state.batch, pending, state.phases, state.decisions, state.now)
    is_next = pending.due_at <= state.now and wait is None
    return [f"{due}: the scheduler starts it at its next round" if is_next else due]
