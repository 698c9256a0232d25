"""Due phases: create their steps, a page of members at a time, then notify the orchestrator."""

from __future__ import annotations

from functools import partial

from lucius.ports.database import Script
from lucius.runbooks.core import making, messages
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.states import ACTIVE, BECAUSE_FAILED, PENDING
from lucius.runbooks.engine import approvals
from lucius.runbooks.engine.members import BEGUN, add_member
from lucius.runbooks.engine.turn import Take, Turn
from lucius.runbooks.store import members, phases, steps
from lucius.runbooks.store.data_tables import last_known
from lucius.runbooks.store.steps import NewStep

PAGE = 400
"""Members whose steps are created in one transaction: few enough that other transactions are not blocked for long."""
PHASES_MAX = 100


def make_steps(turn: Turn, batch: Batch, phase: Phase, after_id: int) -> Script[int | None]:
    """Create the steps of the next page of members; return the last member's id, or None when there are no more."""
    page = yield from members.active_after(batch.id, after_id, PAGE)
    if not page:
        return None
    current = yield from turn.runbook(batch)
    data = yield from last_known(current, batch.version, [member.key for member in page])
    runbook = yield from turn.runbook(batch, phase.version)
    special, wanted = making.specials(batch), runbook.phase(phase.name).steps
    outputs = [known_outputs(runbook, "step", phase.name, index) for index in range(len(wanted))]
    cancelled = making.Cancelled(BECAUSE_FAILED, "the member failed in an earlier phase", turn.now)
    made = []
    for member in page:
        known, ending = data.get(member.key), cancelled if member.failed_at is not None else None
        for index, step in enumerate(wanted):
            shared = making.new_execution(batch.id, step, index, known, special, outputs[index], ending)
            # No barrier waits for a member that is held.
            made.append(NewStep(phase_id=phase.id, member_id=member.id, catching_up=member.is_held, **shared))
    yield from steps.insert(made, turn.step_counts)
    turn.log.members(batch.id, (member.id for member in page))
    return page[-1].id


def dispatch_phase(turn: Turn, batch: Batch, phase: Phase, last_id: int) -> Script[bool]:
    """Begin the phase once every member has its steps, including those that joined meanwhile."""
    while (made := (yield from make_steps(turn, batch, phase, last_id))) is not None:
        last_id = made
    if any(one.id < phase.id and one.status in BEGUN for one in (yield from phases.of_batch(batch.id))):
        # Joined, but perhaps not yet handled by the orchestrator: earlier phases come first for these members too.
        for member_id in (yield from members.without_earlier_steps(batch.id, phase.id)):
            yield from add_member(turn, batch, member_id)
    ids = yield from members.active_ids(batch.id)
    yield from phases.dispatch(phase.id, turn.now, len(ids))
    turn.messages += messages.phase_due(
        batch.runbook_name, phase.version, batch.id, (phase.id, phase.name, phase.offset_minutes, phase.due_at), ids
    )
    turn.note("phase-dispatched", batch, phase=phase.name, version=phase.version, members=len(ids))
    return True


def make_page(phase_id: int, batch_id: int, after_id: int, turn: Turn, by_hand: bool = False) -> Script[int | None]:
    """One transaction per page; None also when the phase must not begin, or not yet."""
    found = yield from _load(turn, phase_id, batch_id, by_hand)
    return None if found is None else (yield from make_steps(turn, *found, after_id))


def begin(phase_id: int, batch_id: int, last_id: int, turn: Turn, by_hand: bool = False) -> Script[bool]:
    found = yield from _load(turn, phase_id, batch_id, by_hand)
    if found is None:
        return False
    state = yield from approvals.state_of(turn, *found)
    if state is not None and state.missing:
        turn.note("approval-expired", found[0], phase=found[1].name, otherwise="run", reason=state.expired)
    return (yield from dispatch_phase(turn, *found, last_id))


def _load(turn: Turn, phase_id: int, batch_id: int, by_hand: bool) -> Script[tuple[Batch, Phase] | None]:
    """Lock the batch and check that the phase may begin now: since it was found, somebody may have held, paused or
    rescheduled the batch."""
    yield from turn.lock([batch_id])
    found = yield from phases.by_ids([phase_id])
    batch = turn.batches.get(batch_id)
    if batch is None or not found or found[0].status != PENDING:
        return None
    if batch.status != ACTIVE or batch.held_at is not None or batch.is_paused:
        return None
    if not by_hand and found[0].due_at > turn.now:
        return None
    if (yield from _waits(turn, batch, found[0])):
        return None
    return batch, found[0]


def _waits(turn: Turn, batch: Batch, phase: Phase) -> Script[bool]:
    """Whether a phase that is due has to wait, or does not begin at all; if it waits, until when is recorded."""
    wait = yield from approvals.wait_of(turn, batch, phase)
    state = yield from approvals.state_of(turn, batch, phase)
    if wait is None:
        has_expired = state is not None and state.missing > 0
        return state is not None and has_expired and not (yield from approvals.expire(turn, batch, phase, state))
    if phase.wait_until == wait.until_at:
        return True
    yield from phases.set_wait(phase.id, wait.until_at)
    if state is not None and state.outcome(turn.now) == "wait":
        yield from approvals.phase_begins_to_wait(turn, batch, phase, state)
    else:
        turn.note("phase-waits", batch, phase=phase.name, until=utc(wait.until_at), reason=wait.because)
    return True


async def begin_phase(take: Take, phase_id: int, batch_id: int, by_hand: bool = False) -> None:
    """Create a phase's steps page by page and begin it, once it is due; `by_hand`: whenever it is due."""
    last_id = 0
    while (made := await take(partial(make_page, phase_id, batch_id, last_id, by_hand=by_hand))) is not None:
        last_id = made
    await take(partial(begin, phase_id, batch_id, last_id, by_hand=by_hand))
