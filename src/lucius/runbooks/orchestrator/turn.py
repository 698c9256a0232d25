"""A turn: one transaction about some batches, each locked for it.

Handlers apply facts to executions that the turn holds, and name whom they have touched. `progress` then brings each
batch as far as its tables allow. What is to be sent, settled and written to the trail is gathered here and leaves with
the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from lucius.domain.time import Instant
from lucius.ports.bus import DeliveryRef, Message
from lucius.ports.clock import Clock
from lucius.runbooks.definition.model import Runbook, Step
from lucius.runbooks.execution import Execution
from lucius.runbooks.tables import batches, trail
from lucius.runbooks.tables.batches import Batch
from lucius.runbooks.tables.definitions import Definitions, step_of
from lucius.runbooks.tables.executions import Changes
from lucius.runbooks.tables.outbox import Outbox
from lucius.sql.database import Database, Run, Script

T = TypeVar("T")


class Turn:
    def __init__(self, now: Instant, definitions: Definitions, outbox: Outbox, actor: str) -> None:
        self.now = now
        self.actor = actor
        self.outbox = outbox
        self.changes = Changes()
        self.batches: dict[int, Batch] = {}
        self.touched: dict[int, Touched] = {}
        self.ended: list[Execution] = []
        """Executions that a fact of this turn has ended."""
        self.unfinished: set[int] = set()
        """Batches that have more to send than one turn may."""
        self.messages: list[Message] = []
        self.settled: list[DeliveryRef] = []
        self.events: list[tuple[Any, ...]] = []
        self.counts: dict[str, int] = {}
        """How many executions came to each status, for the metrics."""
        self._definitions = definitions

    def lock(self, batch_ids: Sequence[int]) -> Script[None]:
        """To be called with every batch that the turn is about, before anything is read of it."""
        self.batches |= yield from batches.lock(batch_ids)

    def touch(self, batch_id: int) -> Touched:
        return self.touched.setdefault(batch_id, Touched())

    def runbook(self, batch: Batch, version: int | None = None) -> Script[Runbook]:
        return (yield from self._definitions.get(batch.runbook_name, version or batch.version))

    def step(self, execution: Execution) -> Script[Step]:
        runbook = yield from self.runbook(self.batches[execution.batch_id], execution.version)
        return step_of(runbook, execution)

    def note(self, kind: str, batch: Batch, member_id: int | None = None, **detail: Any) -> None:
        self.events.append(trail.entry(self.now, kind, self.actor, batch.runbook_name, batch.id, member_id, **detail))

    def count(self, status: str, number: int = 1) -> None:
        self.counts[status] = self.counts.get(status, 0) + number

    def finish(self) -> Script[None]:
        yield from self.changes.write()
        if self.events:
            yield Run(trail.WRITE, self.events)
        if self.messages or self.settled:
            yield from self.outbox.send(self.messages, self.settled, self.now)


class Touched:
    """Whom a batch's facts concern: where `progress` has to look."""

    def __init__(self) -> None:
        self.members: set[int] = set()
        self.phases: set[int] = set()
        self.is_init = False

    def clear(self) -> None:
        self.members.clear()
        self.phases.clear()
        self.is_init = False


class Take(Protocol):
    """Runs some work as a turn, under whatever conditions its maker sets."""

    def __call__(self, work: Callable[[Turn], Script[T]], /) -> Awaitable[T]: ...


class Turns:
    """Runs turns against the database; after each, what it sent takes effect."""

    def __init__(self, database: Database, outbox: Outbox, clock: Clock) -> None:
        self.database = database
        self.outbox = outbox
        self.clock = clock
        self.definitions = Definitions()
        self.after: Callable[[Turn], None] = lambda turn: None
        """Told of every turn that was committed."""
        self._running: set[asyncio.Future[Any]] = set()

    async def take(self, work: Callable[[Turn], Script[T]], actor: str = trail.ORCHESTRATOR) -> T:
        """Run `work` in one transaction. Raises `DatabaseUnavailable`, and then nothing has happened.

        Whoever gives up waiting does not stop it: what was committed must also take effect on the bus.
        """
        task = asyncio.ensure_future(self._take(work, actor))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def until_idle(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    async def _take(self, work: Callable[[Turn], Script[T]], actor: str) -> T:
        last: list[Turn] = []

        def script() -> Script[T]:
            turn = Turn(self.clock.now(), self.definitions, self.outbox, actor)
            last[:] = [turn]
            result = yield from work(turn)
            yield from turn.finish()
            return result

        result = await self.database.write(script)
        turn = last[0]
        self.after(turn)
        if turn.messages or turn.settled:
            await self.outbox.sent(turn.messages, turn.settled, turn.now)
        return result
