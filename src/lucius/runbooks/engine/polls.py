"""Steps whose poll interval has passed: one `poll-check` message per poll."""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core import messages
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import executions
from lucius.runbooks.store.executions import ALL_TABLES

POLLS_MAX = 500
"""Polls requested in one transaction."""


def ask(turn: Turn, due: list[tuple[str, int, int]]) -> Script[None]:
    """Request these polls; their batches are locked."""
    for table in ALL_TABLES:
        ids = [number for name, number, _ in due if name == table]
        if not ids:
            continue
        for one in turn.changes.hold((yield from executions.of_table(table, ids))):
            if one.is_idle_poll and one.poll_asked <= one.poll_count:
                one.poll_asked = one.poll_count + 1
                batch = turn.batches[one.batch_id]
                turn.messages.append(
                    messages.poll_check(
                        batch.runbook_name, one.version, batch.id, one.kind, one.id, one.step_name, one.poll_asked,
                        one.dispatch_count,
                    )
                )  # fmt: skip
