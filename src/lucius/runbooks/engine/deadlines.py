"""Warns before batches miss the deadline that their runbook's notifications set."""

from __future__ import annotations

from functools import partial

from lucius.domain.notifications import Cause
from lucius.domain.time import after
from lucius.notifications.recording import first_time
from lucius.ports.database import Script
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.states import BATCH_ENDED
from lucius.runbooks.engine.turn import Take, Turn, Turns
from lucius.runbooks.store import batches

BATCHES_MAX = 100
MARK_SECONDS = 400 * 86_400.0
"""How long it is remembered that recipients were warned: longer than any deadline."""


async def warn(turns: Turns, take: Take, runbook: Runbook) -> None:
    """Tell the recipients of batches that have not ended although their deadline is near, once for each batch."""
    warn_after, deadline = runbook.notifications.warn_after_seconds, runbook.notifications.deadline_seconds
    if warn_after is None or deadline is None or not runbook.notifications.recipients:
        return
    started_by = after(turns.clock.now(), -warn_after)
    near = await turns.database.read(partial(batches.near_deadline, runbook.name, started_by, BATCHES_MAX))
    for batch_id, mark in near:

        def work(turn: Turn, batch_id: int = batch_id, mark: str = mark) -> Script[None]:
            yield from turn.lock([batch_id])
            batch = turn.batches[batch_id]
            is_first = yield from first_time([(mark, after(turn.now, MARK_SECONDS))])
            if is_first and batch.status not in BATCH_ENDED:
                reason = f"the batch is {batch.status}"
                due_at = after(batch.start, deadline)
                yield from turn.notify(Cause.DEADLINE_NEAR, batch, due_at=due_at, status=batch.status, reason=reason)

        await take(work)
