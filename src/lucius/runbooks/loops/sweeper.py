"""Periodic scans of the tables: due times, lost messages, and steps that are ready to be sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice

from lucius.clocks import SetBack
from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import Instant, after
from lucius.ports.database import DatabaseUnavailable, Script
from lucius.ports.observer import Observer
from lucius.runbooks.core.messages import (
    Event,
)
from lucius.runbooks.engine import facts, lost_messages
from lucius.runbooks.engine.consequences import apply_consequences
from lucius.runbooks.engine.events import take_event
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.loops.settings import OrchestratorSettings
from lucius.runbooks.store import batches, executions, step_counts
from lucius.runbooks.store.executions import ALL_TABLES, Ahead

LOOK_SECONDS = 60.0
"""How often a sweep checks for waits that are too long. It checks at once when the clock was set back."""

COUNTED_MAX = 20
"""Batches of which one round makes the counts anew."""
UNFINISHED_MAX = 5
"""Batches that one turn sends or cancels more of: each may be hundreds of rows, for which other turns wait."""


class Sweeper:
    """Each method runs one or more turns; none needs the bus."""

    def __init__(self, turns: Turns, observer: Observer, settings: OrchestratorSettings) -> None:
        self.turns = turns
        self._observer = observer
        self._settings = settings
        self._unfinished: dict[int, None] = {}
        """Batches that have more to send or to cancel, those that have waited longest first."""
        self._more = asyncio.Event()
        self._set_back = SetBack()
        self._next_check_at = 0.0
        turns.after = self._committed

    async def sweep(self) -> int:
        """Apply the passage of time to the due executions; return how many there were."""
        now = self.turns.clock.now()
        if self._set_back.noticed(now) or time.monotonic() >= self._next_check_at:
            self._next_check_at = time.monotonic() + LOOK_SECONDS
            await self._shorten_waits(now)
        due = await self.turns.database.read(lambda: executions.due(now, facts.SWEEP_MAX))
        if due:

            def work(turn: Turn) -> Script[None]:
                yield from turn.lock([batch_id for _, _, batch_id in due])
                yield from facts.wake_due(turn, [(table, number) for table, number, _ in due])
                yield from apply_consequences(turn)

            await self.turns.take(work)
        await self.turns.outbox.empty(now)
        return len(due)

    async def _declare_workers(self, events: Sequence[Event]) -> None:
        """Whoever has a bus creates the queues that handling these events may need."""

    async def recover_lost_messages(self) -> None:
        """Handle the events of lost messages, each in its own turn: a failure does not stop the others."""
        before = after(self.turns.clock.now(), -self._settings.lost_after_seconds)
        found = await self.turns.database.read(lambda: lost_messages.find(before))
        await self._declare_workers(found)
        for event in found:

            def work(turn: Turn, event: Event = event) -> Script[None]:
                yield from turn.lock([event.batch_id])
                yield from take_event(turn, event)
                turn.note("message-lost", turn.batches[event.batch_id], message=event.type, subject=event.subject_id)
                yield from apply_consequences(turn)

            try:
                await self.turns.take(work)
            except DatabaseUnavailable:
                raise
            except Exception as error:
                self._observer.failed(f"lost {event.type} of batch {event.batch_id}", error)
        if found:
            self._observer.swept("lost_message", len(found))

    async def count_anew(self) -> None:
        """Make the counts of open batches anew that a program without counts was the last to change."""
        for batch_id in await self.turns.database.read(lambda: step_counts.uncounted(COUNTED_MAX)):
            await self.turns.take(partial(_count_anew, batch_id))

    async def _shorten_waits(self, now: Instant) -> None:
        """Shorten waits written while a clock was ahead, which would otherwise last too long."""
        for table in ALL_TABLES:
            found: list[Ahead] = []
            while True:
                last = found[-1] if found else None
                found = await self.turns.database.read(partial(facts.ahead, table, now, last))
                if not found:
                    break
                await self.turns.take(partial(facts.shorten_waits, table, found))

    async def send_ready(self, batch_ids: Sequence[int]) -> None:
        """Send the ready steps of these batches, up to the limit of one turn."""

        def work(turn: Turn) -> Script[None]:
            yield from turn.lock(batch_ids)
            for batch_id in batch_ids:
                turn.touch(batch_id)
            yield from apply_consequences(turn)

        if batch_ids:
            await self.turns.take(work)

    async def resume(self) -> None:
        """Find batches with ready steps that no turn is sending, or with steps that no turn is cancelling: after a
        crash, or when a slot becomes free."""
        now = self.turns.clock.now()
        ready = await self.turns.database.read(lambda: executions.ready_batches(now))
        self._add_unfinished({*ready, *(await self.turns.database.read(batches.cancelling))})

    def _committed(self, turn: Turn) -> None:
        self._add_unfinished(turn.unfinished)
        for (runbook, status), count in turn.counts.items():
            self._observer.steps_moved(status, count, runbook)
        if turn.log.batch_ids:
            changed = (turn.batches[batch_id] for batch_id in turn.log.batch_ids)
            self._observer.batches_changed({one.id: tenant_of_runbook(one.runbook_name) for one in changed})
        runbooks = turn.runbooks | {event.runbook_name for event in turn.events if event.batch_id is None}
        if runbooks:
            self._observer.runbooks_changed(runbooks)

    async def _send_more(self) -> None:
        await self._more.wait()
        self._more.clear()
        await self.send_ready(self.take_unfinished())

    def take_unfinished(self) -> list[int]:
        """The batches of the next turn; if there are more, another turn follows."""
        batch_ids = list(islice(self._unfinished, UNFINISHED_MAX))
        for batch_id in batch_ids:
            del self._unfinished[batch_id]
        if self._unfinished:
            self._more.set()
        return batch_ids

    def _add_unfinished(self, batch_ids: Collection[int]) -> None:
        if batch_ids:
            self._unfinished |= dict.fromkeys(sorted(batch_ids))
            self._more.set()


def _count_anew(batch_id: int, turn: Turn) -> Script[None]:
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    if not batch.is_counted:
        yield from step_counts.count_anew(batch_id)
        batch.is_counted = True
        turn.log.touch(batch_id)
