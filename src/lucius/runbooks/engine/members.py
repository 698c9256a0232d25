"""Members that join a batch late, and members that leave it."""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core import making
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.records import Batch, Member, Phase
from lucius.runbooks.core.states import ACTIVE, BATCH_ENDED, BECAUSE_REMOVED, COMPLETED, DISPATCHED, FAILED
from lucius.runbooks.engine import chains
from lucius.runbooks.engine.chains import ChainOf
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import followups, members, phases, steps, trail
from lucius.runbooks.store.data_tables import last_known
from lucius.runbooks.store.steps import NewStep

BEGUN = frozenset({DISPATCHED, COMPLETED, FAILED})


def add_member(turn: Turn, batch: Batch, member_id: int) -> Script[None]:
    """Catch-up: the steps of every phase that has begun, in order, for this member alone."""
    member = (yield from members.by_ids([member_id])).get(member_id)
    if member is None or member.status != ACTIVE:
        return
    yield from members.set_add_handled(member_id, turn.now)
    begun = _still_valid([phase for phase in (yield from phases.of_batch(batch.id)) if phase.status in BEGUN])
    existing = yield from steps.phases_of_member(member_id)
    if batch.status in BATCH_ENDED:
        if begun and not existing:
            yield from _leave_out(turn, batch, member)
    elif begun:
        # A member that already has steps was announced before, or its phase began with it: do not record it twice.
        yield from _make_steps(turn, batch, member, [phase for phase in begun if phase.id not in existing])
        touched = turn.touch(batch.id)
        touched.members.add(member_id)
        touched.phases.update(phase.id for phase in begun)


def _leave_out(turn: Turn, batch: Batch, member: Member) -> Script[None]:
    """The batch ended before this message was handled. The source's next reading puts the member in a new batch."""
    # Recorded as the scheduler's removal: a member that an operator removed would not come back.
    yield from members.leave_out(member.id, turn.now, trail.SCHEDULER)
    turn.note("member-too-late", batch, member.id, member=member.key, reason=f"the batch is {batch.status}")


def _still_valid(begun: list[Phase]) -> list[Phase]:
    """Leaves out phases that a newer version has begun again: new members do not run them."""
    newest: dict[str, int] = {}
    for phase in begun:
        newest[phase.name] = max(phase.version, newest.get(phase.name, 0))
    return [phase for phase in begun if phase.version == newest[phase.name]]


def _make_steps(turn: Turn, batch: Batch, member: Member, begun: list[Phase]) -> Script[None]:
    current = yield from turn.runbook(batch)
    data = (yield from last_known(current, batch.version, [member.key], only_current=True)).get(member.key)
    special = making.specials(batch)
    for phase in begun:
        runbook = yield from turn.runbook(batch, phase.version)
        rows = []
        for index, step in enumerate(runbook.phase(phase.name).steps):
            outputs = known_outputs(runbook, "step", phase.name, index)
            shared = making.new_execution(batch.id, step, index, data, special, outputs)
            rows.append(NewStep(phase_id=phase.id, member_id=member.id, catching_up=True, **shared))
        yield from steps.insert(rows, turn.step_counts)
        turn.log.members(batch.id, (member.id,))
        if phase.status != DISPATCHED and (yield from steps.has_open(phase.id, member.id)):
            yield from phases.reopen([phase.id])
    if begun:
        turn.note("member-catches-up", batch, member.id, member=member.key, phases=[phase.name for phase in begun])


def remove_member(turn: Turn, batch: Batch, member_id: int, version: int) -> Script[None]:
    """Cancel its open steps at once; the steps of this version's `on_member_removed` wait for those already running."""
    member = (yield from members.by_ids([member_id])).get(member_id)
    if member is None or member.status == ACTIVE:
        return
    yield from members.set_remove_handled(member_id, turn.now)
    touched = turn.touch(batch.id)
    touched.members.add(member_id)
    for step in turn.changes.hold((yield from steps.open_of_member(member_id))):
        if step.cancel(turn.now, BECAUSE_REMOVED, "the member was removed from the batch"):
            turn.count(step)
            touched.phases.add(step.phase_id or 0)
    runbook = yield from turn.runbook(batch, version)
    if runbook.on_member_removed:
        data = (yield from last_known(runbook, batch.version, [member.key])).get(member.key)
        of = ChainOf(
            parent_id=member_id, round=0, member_id=member_id, phase_id=None, version=version,
            list_name="on_member_removed",
        )  # fmt: skip
        if not (yield from followups.has_removal(member_id)):
            yield from chains.begin(turn, batch, "removal", of, runbook.on_member_removed, runbook, data)
