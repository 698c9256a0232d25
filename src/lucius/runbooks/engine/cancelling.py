"""Cancels the steps of a cancelled batch, some in each turn, so that no transaction holds up the others for long.

A batch that is cancelled has ended at once, and sends nothing but rollbacks. What it still has open is cancelled by the
turns that follow, wherever they run: each says that there is more, and whoever died in between is replaced by a sweep.
"""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import BECAUSE_STOPPED, CANCELLED, DISPATCHED, SKIPPED
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, phases, steps
from lucius.runbooks.store.steps import ToCancel

STEPS_MAX = 1_000
"""Steps cancelled in one turn; not more than one row of `batch_changes` names."""


def cancel_some(turn: Turn, batch: Batch) -> Script[None]:
    """Cancel the next steps that no worker has; what workers have ends with their answer. Call when every change is
    written."""
    found = yield from steps.ready_to_cancel(batch.id, STEPS_MAX)
    for phase in reversed((yield from phases.of_batch(batch.id))):
        if phase.status in (DISPATCHED, SKIPPED) and len(found) < STEPS_MAX:
            seen = {one.id for one in found}
            more = yield from steps.open_to_cancel(phase.id, STEPS_MAX)
            found += [one for one in more if one.id not in seen][: STEPS_MAX - len(found)]
    if len(found) == STEPS_MAX:
        turn.unfinished.add(batch.id)
    else:
        yield from batches.end_cancelling(batch)
    yield from _cancel(turn, batch, found)


def _cancel(turn: Turn, batch: Batch, found: list[ToCancel]) -> Script[None]:
    why = batch.error_message or "the batch has ended"
    yield from steps.cancel([one.id for one in found], BECAUSE_STOPPED, why, turn.now)
    turn.log.touch(batch.id)
    for one in found:
        turn.step_counts.changed(batch.id, one.phase_id, one.step_index, one.status, CANCELLED, 1)
        turn.log.step(batch.id, one.id)
    turn.touch(batch.id).phases.update(one.phase_id for one in found)
