"""A turn: one transaction on some batches, each of which it locks.

Handlers apply facts to executions loaded by the turn and record what they touched. `progress` then advances each
batch as far as its tables allow. Messages to send, deliveries to settle and trail events are collected here and take
effect with the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from lucius.domain.notifications import Cause, Facts, Notice, Recipient, notices_of
from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import Instant
from lucius.notifications.recording import record
from lucius.ports.bus import DeliveryRef, Message
from lucius.ports.clock import Clock
from lucius.ports.database import Database, Script
from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.grants import Grants
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import BATCH_ENDED
from lucius.runbooks.core.steps import step_of
from lucius.runbooks.engine.outbox import Outbox
from lucius.runbooks.store import batches, trail
from lucius.runbooks.store.batch_changes import ChangeLog
from lucius.runbooks.store.changes import Changes
from lucius.runbooks.store.definitions import Definitions
from lucius.runbooks.store.step_counts import CountChanges
from lucius.runbooks.store.trail import NewEvent

T = TypeVar("T")

log = logging.getLogger("lucius.runbooks")


class Turn:
    def __init__(
        self,
        now: Instant,
        definitions: Definitions,
        outbox: Outbox,
        tokens: JobTokens,
        actor: str,
        is_shared: bool = False,
        grants: Grants | None = None,
    ) -> None:
        """`is_shared`: whether other programs may write to the database, such as another scheduler."""
        self.now = now
        self.grants = grants or Grants()
        self.is_shared = is_shared
        self.actor = actor
        self.outbox = outbox
        self.tokens = tokens
        self.log = ChangeLog()
        self.step_counts = CountChanges()
        self.changes = Changes(self.log, self.step_counts)
        self.batches: dict[int, Batch] = {}
        self.touched: dict[int, Touched] = {}
        self.ended: list[Execution] = []
        """Executions that a fact of this turn has ended."""
        self.next_steps: dict[int, list[int]] = {}
        """By batch: steps that `dispatch` sends in this turn, and that are therefore not marked as ready first."""
        self.unfinished: set[int] = set()
        """Batches that have more to send than one turn may."""
        self.messages: list[Message] = []
        self.settled: list[DeliveryRef] = []
        self.events: list[NewEvent] = []
        self.runbooks: set[str] = set()
        """Those about which more has changed than batches, and than an event tells."""
        self.notices: list[Notice] = []
        self.counts: dict[tuple[str, str], int] = {}
        """How many executions of each runbook reached each status, for the metrics."""
        self._definitions = definitions

    def lock(self, batch_ids: Sequence[int]) -> Script[None]:
        """Call with every batch of the turn before reading anything of it."""
        self.batches |= yield from batches.lock(batch_ids)

    def touch(self, batch_id: int) -> Touched:
        return self.touched.setdefault(batch_id, Touched())

    def runbook(self, batch: Batch, version: int | None = None) -> Script[Runbook]:
        return (yield from self._definitions.get(batch.runbook_name, version or batch.version))

    def step(self, execution: Execution) -> Script[Step]:
        runbook = yield from self.runbook(self.batches[execution.batch_id], execution.version)
        return step_of(runbook, execution)

    def note(self, kind: str, batch: Batch, member_id: int | None = None, **detail: Any) -> None:
        self.log.members(batch.id, () if member_id is None else (member_id,))
        self.events.append(trail.entry(self.now, kind, self.actor, batch.runbook_name, batch.id, member_id, **detail))

    def notify(self, cause: Cause, batch: Batch, about: str = "", **facts: Any) -> Script[None]:
        """Tell the runbook's recipients who want to know, once this turn is committed. `about` tells apart what happens
        to one batch for the same cause, such as two phases: at most one message for each in a recipient's interval.
        `facts` are fields of `Facts`."""
        runbook = yield from self.runbook(batch)
        self.tell(
            runbook, Facts(cause=cause, at=self.now, about=about, runbook=runbook.name, batch_id=batch.id, **facts)
        )

    def tell(self, runbook: Runbook, facts: Facts) -> None:
        """Like `notify`, for what is not about one batch."""
        facts = replace(facts, tenant_id=tenant_of_runbook(runbook.name))
        told = [one for one in runbook.notifications.recipients if self._may_use(runbook, one)]
        self.notices += notices_of(facts, told)

    def _may_use(self, runbook: Runbook, recipient: Recipient) -> bool:
        """A grant may have been withdrawn since the runbook was published."""
        for variable in recipient.variables.values():
            refusal = self.grants.connection_refusal(runbook.name, variable)
            if refusal is not None:
                log.warning("%s: %s is not told: %s", runbook.name, recipient.name, refusal)
                return False
        return True

    def count(self, execution: Execution) -> None:
        """An execution has reached its status."""
        key = self.batches[execution.batch_id].runbook_name, execution.status
        self.counts[key] = self.counts.get(key, 0) + 1

    def finish(self) -> Script[None]:
        yield from self.changes.write()
        yield from self.step_counts.write(one.id for one in self.batches.values() if one.is_counted)
        for batch_id in sorted(self.log.batch_ids):
            batch = self.batches[batch_id]
            ended = batch.status in BATCH_ENDED and not batch.is_cancelling
            yield from self.log.write(batch_id, batch.change_number + 1, ended, bool(batch.is_counted))
        if self.events:
            yield from trail.write(self.events)
        if self.notices:
            yield from record(self.notices, self.now)
        if self.messages or self.settled:
            yield from self.outbox.send(self.messages, self.settled, self.now)


def said(reason: str) -> dict[str, Any]:
    """The reason that an operator gave, for the trail."""
    return {"reason": reason} if reason else {}


class Touched:
    """Members, phases and chains that the facts of a batch affect: where `progress` has to look."""

    def __init__(self) -> None:
        self.members: set[int] = set()
        self.phases: set[int] = set()
        self.is_init = False

    def clear(self) -> None:
        self.members.clear()
        self.phases.clear()
        self.is_init = False


class Take(Protocol):
    """Runs work as a turn, under conditions that the implementer sets."""

    def __call__(self, work: Callable[[Turn], Script[T]], /) -> Awaitable[T]: ...


class Turns:
    """Runs turns against the database; their messages are sent after the commit."""

    def __init__(
        self, database: Database, outbox: Outbox, clock: Clock, tokens: JobTokens, grants: Grants | None = None
    ) -> None:
        """Without `grants`, tenants' runbooks may use nothing."""
        self.database = database
        self.grants = grants or Grants()
        self.outbox = outbox
        self.tokens = tokens
        self.clock = clock
        self.definitions = Definitions()
        self.after: Callable[[Turn], None] = lambda turn: None
        """Called after each committed turn."""
        self._running: set[asyncio.Future[Any]] = set()

    async def take(self, work: Callable[[Turn], Script[T]], actor: str = trail.ORCHESTRATOR) -> T:
        """Run `work` in one transaction. Raises `DatabaseUnavailable`; then nothing has happened.

        Cancelling the caller does not stop it: a committed turn must also take effect on the bus.
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
            turn = Turn(
                self.clock.now(), self.definitions, self.outbox, self.tokens, actor, self.database.is_shared,
                self.grants,
            )  # fmt: skip
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
