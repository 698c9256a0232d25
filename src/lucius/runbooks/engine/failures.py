"""Consequences of failed steps: later steps are cancelled, rollbacks begin, too many failures stop the phase."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.notifications import Cause
from lucius.ports.database import Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.states import BECAUSE_FAILED, BECAUSE_LIMIT, DISPATCHED
from lucius.runbooks.core.steps import step_of
from lucius.runbooks.engine import chains
from lucius.runbooks.engine.chains import ChainOf
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, members, phases, steps
from lucius.runbooks.store.data_tables import last_known


def fail_members(turn: Turn, batch: Batch, failed: Sequence[Execution]) -> Script[None]:
    """These steps have finally failed. Their members stop, unless an operator retries them."""
    ids = sorted({one.member_id for one in failed if one.member_id is not None})
    yield from members.set_failed(ids, turn.now)
    later = turn.changes.hold((yield from steps.pending_of_members(ids)))
    reasons = {one.member_id: f"step {one.step_name} failed" for one in failed}
    for step in later:
        step.cancel(turn.now, BECAUSE_FAILED, reasons[step.member_id])
        turn.touch(batch.id).phases.add(step.phase_id or 0)
    for one in failed:
        turn.note("step-failed", batch, one.member_id, step=one.step_name, phase=one.list_name, status=one.status,
                  reason=one.error_message)  # fmt: skip
        yield from turn.notify(
            Cause.STEP_FAILED,
            batch,
            phase=one.list_name,
            reason=f"step {one.step_name}: {one.error_message or one.status}",
        )
    yield from _begin_rollbacks(turn, batch, failed)


def _begin_rollbacks(turn: Turn, batch: Batch, failed: Sequence[Execution]) -> Script[None]:
    wanted = []
    for one in failed:
        runbook = yield from turn.runbook(batch, one.version)
        name = step_of(runbook, one).on_failure
        if name is not None:
            wanted.append((one, runbook, name))
    if not wanted:
        return
    current = yield from turn.runbook(batch)
    of_ids = yield from members.by_ids([one.member_id for one, _, _ in wanted if one.member_id is not None])
    data = yield from last_known(current, batch.version, [member.key for member in of_ids.values()])
    for one, runbook, name in wanted:
        of = ChainOf(
            parent_id=one.id, round=one.dispatch_count, member_id=one.member_id, phase_id=one.phase_id,
            version=one.version, list_name=name,
        )  # fmt: skip
        row = data.get(of_ids[one.member_id].key) if one.member_id in of_ids else None
        yield from chains.begin(turn, batch, "rollback", of, runbook.rollbacks[name], runbook, row)


def hold_where_exceeded(turn: Turn, batch: Batch, phase_ids: Sequence[int]) -> Script[None]:
    """Stop a phase with more failures than `max_failures` and hold the batch. Call after `write`."""
    for phase in (yield from phases.by_ids(phase_ids)):
        runbook = yield from turn.runbook(batch, phase.version)
        limit = runbook.max_failures
        if limit is None:
            continue
        failed = (yield from steps.count_failed_members(phase.id)) - phase.failures_forgiven
        if limit.is_exceeded(failed, phase.member_count or 0):
            yield from _hold(turn, batch, phase, failed)


def _hold(turn: Turn, batch: Batch, phase: Phase, failed: int) -> Script[None]:
    reason = (
        f"{failed} of {phase.member_count or 0} members failed in phase {phase.name}: more than max_failures allows"
    )
    # Later phases are held, even one that has already begun: members stopped here must not continue there.
    begun = [one.id for one in (yield from phases.of_batch(batch.id)) if one.status == DISPATCHED]
    stopped = [phase_id for phase_id in begun if phase_id >= phase.id]
    yield from steps.cancel_pending(batch.id, stopped, BECAUSE_LIMIT, reason, turn.now, turn.step_counts)
    turn.log.anything(batch.id)
    turn.touch(batch.id).phases.update(stopped)
    if batch.held_at is None:
        yield from batches.hold(batch, turn.now, reason)
        turn.note("batch-held", batch, reason=reason, phase=phase.name)
        yield from turn.notify(Cause.BATCH_HELD, batch, phase=phase.name, reason=reason)
