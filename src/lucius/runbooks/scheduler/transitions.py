"""From one version of a runbook to the next, for batches that are under way."""

from __future__ import annotations

from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.orchestrator.chains import DROP_UNBEGUN
from lucius.runbooks.orchestrator.progress import close_batch
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.scheduler.batching import RunbookRow, add_phases, start_init
from lucius.runbooks.states import ACTIVE, BATCH_ENDED, BECAUSE_SUPERSEDED, INIT_DISPATCHED
from lucius.runbooks.tables import executions
from lucius.runbooks.tables.batches import Batch
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import OPEN

BEHIND = (
    "SELECT b.id FROM batches b WHERE b.runbook_name = $1 AND b.completed_at IS NULL AND b.runbook_id <> $2"
    " ORDER BY b.id LIMIT $3"
)
BATCHES_MAX = 200
_SKIP = (
    "UPDATE phase_executions SET status = 'skipped', completed_at = $3, error_message = $4"
    " WHERE batch_id = $1 AND runbook_version < $2 AND status = 'pending'"
)
_FOLLOW = "UPDATE batches SET runbook_id = $2 WHERE id = $1"
_APPLIED = "UPDATE runbooks SET ignore_overdue_applied = TRUE WHERE id = $1 AND ignore_overdue_applied = FALSE"


def behind(row: RunbookRow) -> Script[list[int]]:
    """Open batches of this runbook that follow another version."""
    return [found[0] for found in (yield Fetch(BEHIND, (row.name, row.id, BATCHES_MAX)))]


def move_batch(turn: Turn, batch: Batch, row: RunbookRow, runbook: Runbook) -> Script[None]:
    """The old version's pending phases are skipped, the new one's made; overdue ones run again or are skipped."""
    if batch.status in BATCH_ENDED or batch.version >= row.version:
        return
    old = batch.version
    reason = f"superseded by version {row.version}"
    yield Run(_SKIP, [(batch.id, row.version, turn.now, reason)])
    yield Run(DROP_UNBEGUN, [(batch.id,)])
    yield Run(_FOLLOW, [(batch.id, row.id)])
    batch.runbook_id, batch.version, batch.data_table = row.id, row.version, row.data_table
    yield from add_phases(turn, batch, row, runbook, skips_overdue=row.overdue_behavior == "ignore")
    turn.note("version-changed", batch, before=old, after=row.version, overdue=row.overdue_behavior)
    init_runs = batch.status == INIT_DISPATCHED
    if init_runs:
        yield from _stop_init(turn, batch, old, reason)
    if runbook.init and (init_runs or (row.rerun_init and batch.status == ACTIVE)):
        yield from start_init(turn, batch, runbook)
    elif init_runs:
        turn.touch(batch.id).is_init = True  # The new version has no init: the batch is active.
    else:
        yield from close_batch(turn, batch)  # The new version may have skipped all that was left.


def _stop_init(turn: Turn, batch: Batch, version: int, reason: str) -> Script[None]:
    where = f"e.batch_id = $1 AND e.runbook_version = $2 AND e.{OPEN}"
    for one in turn.changes.hold((yield from executions.select("init_executions", where, batch.id, version))):
        one.cancel(turn.now, BECAUSE_SUPERSEDED, reason)


def mark_applied(row: RunbookRow) -> Script[None]:
    """`ignore` was applied to every batch there was; phases that fall due from now on are run."""
    yield Run(_APPLIED, [(row.id,)])
