"""Moves running batches from one version of a runbook to the next."""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.records import Batch, RunbookRow
from lucius.runbooks.core.states import ACTIVE, BATCH_ENDED, BECAUSE_SUPERSEDED, INIT_DISPATCHED
from lucius.runbooks.engine.batching import add_phases, start_init
from lucius.runbooks.engine.progress import close_batch
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, inits, phases, runbooks, steps

BATCHES_MAX = 200


def behind(row: RunbookRow) -> Script[list[int]]:
    """Open batches of this runbook on another version."""
    return (yield from batches.behind(row.name, row.id, BATCHES_MAX))


def move_batch(turn: Turn, batch: Batch, row: RunbookRow, runbook: Runbook) -> Script[None]:
    """Skip the old version's pending phases and create the new one's; overdue ones run again or are skipped."""
    if batch.status in BATCH_ENDED or batch.version >= row.version:
        return
    old = batch.version
    reason = f"superseded by version {row.version}"
    yield from phases.skip_older(batch.id, row.version, turn.now, reason)
    yield from steps.drop_unbegun(batch.id)
    yield from batches.follow_version(batch, row.id)
    batch.runbook_id, batch.version, batch.data_table = row.id, row.version, row.data_table
    yield from add_phases(turn, batch, row, runbook, skips_overdue=row.overdue_behavior == "ignore")
    turn.touch(batch.id)  # Steps that wait may be sent now, if the new version's windows allow it.
    turn.note("version-changed", batch, before=old, after=row.version, overdue=row.overdue_behavior)
    init_runs = batch.status == INIT_DISPATCHED
    if init_runs:
        yield from _stop_init(turn, batch, old, reason)
    if runbook.init and (init_runs or (row.rerun_init and batch.status == ACTIVE)):
        yield from start_init(turn, batch, runbook)
    elif init_runs:
        turn.touch(batch.id).is_init = True  # The new version has no init: the batch is active.
    else:
        yield from close_batch(turn, batch)  # The new version may have skipped all remaining phases.


def _stop_init(turn: Turn, batch: Batch, version: int, reason: str) -> Script[None]:
    for one in turn.changes.hold((yield from inits.open_of_version(batch.id, version))):
        one.cancel(turn.now, BECAUSE_SUPERSEDED, reason)


def mark_applied(row: RunbookRow) -> Script[None]:
    """`ignore` was applied to every existing batch; phases that become due from now on run."""
    yield from runbooks.set_overdue_applied(row.id)
