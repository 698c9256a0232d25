"""The counts that turns keep, compared with counting the steps."""

from __future__ import annotations

from harness import Harness

from lucius.runbooks.store import step_counts
from lucius.sql.database import Fetch, Script


async def expect_counts_to_hold(harness: Harness) -> None:
    """What is kept of each batch's steps is what counting them gives."""
    for (batch_id,) in await harness.rows("SELECT id FROM batches"):

        def both(batch_id: int = batch_id) -> Script[list[dict[tuple[object, ...], int]]]:
            found = []
            for sql in (step_counts.OF_BATCH, step_counts.BY_ROWS):
                rows = yield Fetch(sql, [batch_id])
                totals: dict[tuple[object, ...], int] = {}
                for phase_id, index, name, status, in_flight, count in (
                    step_counts.states_of(rows) if sql == step_counts.OF_BATCH else rows
                ):
                    key = (phase_id, index, name, step_counts.PLACES[status, bool(in_flight)])
                    totals[key] = totals.get(key, 0) + count
                found.append({key: count for key, count in totals.items() if count})
            return found

        kept, counted = await harness.database.read(both)
        assert kept == counted, f"batch {batch_id}"
