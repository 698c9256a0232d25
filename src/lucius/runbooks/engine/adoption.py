"""Rows of a scheduler that knows only the contract: fills in what LUCIUS keeps besides.

Such a scheduler writes the contract's columns and sends its messages. The other columns have defaults; what a default
cannot say is derived here, when the orchestrator first meets a row. Rows of LUCIUS's own scheduler need none of it.
"""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import ACTIVE, DETECTED, INIT_DISPATCHED
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, phases, runbooks, steps
from lucius.runbooks.store.data_tables import adopt_table
from lucius.runbooks.store.definitions import RunbookMissing


def follow(turn: Turn, batch: Batch, version: int) -> Script[None]:
    """The batch belongs to this version from now on. Raises `RunbookMissing`."""
    row = yield from runbooks.by_version(batch.runbook_name, version)
    if row is None:
        raise RunbookMissing(f"runbook {batch.runbook_name} has no version {version}")
    yield from batches.follow_version(batch, row.id)
    turn.log.anything(batch.id)
    turn.note("version-changed", batch, before=batch.version, after=version)
    batch.runbook_id, batch.version, batch.data_table = row.id, row.version, row.data_table
    batch.has_columns = False  # It is looked up again: the table may have been made by another scheduler.


def adopt_batch(turn: Turn, batch: Batch) -> Script[None]:
    if not batch.is_named:
        yield from batches.set_name(batch)
    if not batch.has_columns:
        batch.has_columns = yield from adopt_table(batch.runbook_id, batch.data_table)


def adopt_init(turn: Turn, batch: Batch) -> Script[None]:
    if batch.status == DETECTED:
        yield from batches.start_init(batch, INIT_DISPATCHED, turn.now)


def adopt_phase(turn: Turn, batch: Batch, phase_id: int) -> Script[None]:
    """LUCIUS's scheduler counts the members of a phase when it begins; another one does not."""
    found = [phase for phase in (yield from phases.by_ids([phase_id])) if phase.batch_id == batch.id]
    if not found or found[0].member_count is not None:
        return
    yield from steps.set_batch(phase_id, batch.id, turn.step_counts)
    turn.log.anything(batch.id)
    yield from phases.set_member_count(phase_id)
    if batch.status == DETECTED:  # It has no init, or its phases would wait for that.
        yield from batches.set_status(batch, ACTIVE)
        turn.note("batch-active", batch)
