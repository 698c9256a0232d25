"""Members who join a batch late, and members who leave it."""

from __future__ import annotations

from lucius.runbooks.definition.variables import known_outputs
from lucius.runbooks.orchestrator import chains
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import ACTIVE, BATCH_ENDED, BECAUSE_REMOVED, COMPLETED, DISPATCHED, FAILED
from lucius.runbooks.tables import batches, executions, making, trail
from lucius.runbooks.tables.batches import Batch, Member, Phase
from lucius.runbooks.tables.data_tables import last_known
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import OPEN

BEGUN = frozenset({DISPATCHED, COMPLETED, FAILED})
LEAVE_OUT = (
    "UPDATE batch_members SET status = 'removed', removed_at = $2, removed_by = $3 WHERE id = $1 AND status = 'active'"
)
HAS_STEPS = "SELECT DISTINCT phase_execution_id FROM step_executions WHERE batch_member_id = $1"


def add_member(turn: Turn, batch: Batch, member_id: int) -> Script[None]:
    """Catch-up: the steps of every phase that has begun, in order, for this member alone."""
    member = (yield from batches.members_by_ids([member_id])).get(member_id)
    if member is None or member.status != ACTIVE:
        return
    begun = _still_valid([phase for phase in (yield from batches.phases_of(batch.id)) if phase.status in BEGUN])
    there = {row[0] for row in (yield Fetch(HAS_STEPS, [member_id]))}
    if batch.status in BATCH_ENDED:
        if begun and not there:
            yield from _leave_out(turn, batch, member)
    elif begun:
        # Who has its steps already was told of before, or the phase began with it: that is not to be said twice.
        yield from _make_steps(turn, batch, member, [phase for phase in begun if phase.id not in there])
        touched = turn.touch(batch.id)
        touched.members.add(member_id)
        touched.phases.update(phase.id for phase in begun)


def _leave_out(turn: Turn, batch: Batch, member: Member) -> Script[None]:
    """The batch ended before this was heard of. Who is no member of it makes a new one at the source's next reading."""
    # In the scheduler's name: whom an operator took out would not come again.
    yield Run(LEAVE_OUT, [(member.id, turn.now, trail.SCHEDULER)])
    turn.note("member-too-late", batch, member.id, member=member.key, reason=f"the batch is {batch.status}")


def _still_valid(begun: list[Phase]) -> list[Phase]:
    """A phase that a newer version has begun again is not for those who join now."""
    newest: dict[str, int] = {}
    for phase in begun:
        newest[phase.name] = max(phase.version, newest.get(phase.name, 0))
    return [phase for phase in begun if phase.version == newest[phase.name]]


def _make_steps(turn: Turn, batch: Batch, member: Member, begun: list[Phase]) -> Script[None]:
    current = yield from turn.runbook(batch)
    data = (yield from last_known(current, batch.version, [member.key])).get(member.key)
    special = making.specials(batch)
    for phase in begun:
        runbook = yield from turn.runbook(batch, phase.version)
        rows = []
        for index, step in enumerate(runbook.phase(phase.name).steps):
            outputs = known_outputs(runbook, "step", phase.name, index)
            shared = making.shared_values(batch.id, step, index, data, special, outputs)
            rows.append((phase.id, member.id, True, *shared))
        yield Run(executions.INSERT["step_executions"], rows)
        if phase.status != DISPATCHED:
            where = f"e.phase_execution_id = $1 AND e.batch_member_id = $2 AND e.{OPEN} ORDER BY e.id LIMIT 1"
            if (yield from executions.select("step_executions", where, phase.id, member.id)):
                yield Run(batches.REOPEN_PHASE, [(phase.id,)])
    if begun:
        turn.note("member-catches-up", batch, member.id, member=member.key, phases=[phase.name for phase in begun])


def remove_member(turn: Turn, batch: Batch, member_id: int) -> Script[None]:
    """Its open steps are cancelled at once; what `on_member_removed` asks for waits for what is under way."""
    member = (yield from batches.members_by_ids([member_id])).get(member_id)
    if member is None or member.status == ACTIVE:
        return
    touched = turn.touch(batch.id)
    touched.members.add(member_id)
    where = f"e.batch_member_id = $1 AND e.{OPEN}"
    for step in turn.changes.hold((yield from executions.select("step_executions", where, member_id))):
        if step.cancel(turn.now, BECAUSE_REMOVED, "the member was removed from the batch"):
            turn.count(step.status)
            touched.phases.add(step.phase_id or 0)
    runbook = yield from turn.runbook(batch)
    if runbook.on_member_removed:
        data = (yield from last_known(runbook, batch.version, [member.key])).get(member.key)
        of = (member_id, None, batch.version, "on_member_removed")
        where = "e.kind = 'removal' AND e.parent_id = $1 ORDER BY e.id LIMIT 1"
        if not (yield from executions.select("followup_executions", where, member_id)):
            steps = runbook.on_member_removed
            yield from chains.begin(turn, batch, "removal", (member_id, 0), of, steps, runbook, data)
