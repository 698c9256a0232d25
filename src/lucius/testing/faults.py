"""Wrappers around real ledgers and buses that fail on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.ports.audit import AuditEntry
from lucius.ports.bus import (
    Bus,
    BusUnavailable,
    DeadLetter,
    Delivery,
    DeliveryRef,
    Depth,
    Message,
    Refused,
    Subscription,
)
from lucius.ports.ledger import (
    Change,
    Closing,
    CommitOutcome,
    Conflict,
    Duplicate,
    FailureGroups,
    HeldLine,
    JobFilter,
    JobKey,
    Ledger,
    LedgerUnavailable,
    OpenGroups,
    OutboxRow,
    Repairs,
    Tally,
    UnreadableJob,
    Webhook,
)


class FaultyBus:
    """Does not open or close the bus inside. Never enlisted, so everything is published after the commit."""

    def __init__(self, inside: Bus) -> None:
        self.inside = inside
        self.is_down = False
        """Every call raises `BusUnavailable`."""
        self.delay_seconds = 0.0
        """Every call takes this much longer."""
        self.refusal_reason: str | None = None
        """Every message is refused for this reason."""
        self.lost_messages = 0
        """This many of the next messages are taken and lost."""
        self.lost_answers = 0
        """This many of the next publishes are carried out and answered with `BusUnavailable`."""
        self.doubles_deliveries = False
        """Every delivery is made twice."""
        self.withdraws_nothing = False
        """Behaves like a bus that cannot withdraw messages."""
        self.loses_settling = False
        """Settling is answered and not carried out."""
        self.settled_in_vain: set[DeliveryRef] = set()
        """The messages concerned: an engine may settle one more than once."""
        self.published = 0
        """Number of messages published to the bus inside."""

    async def __aenter__(self) -> FaultyBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def message_bytes_max(self) -> int:
        return self.inside.message_bytes_max

    @message_bytes_max.setter
    def message_bytes_max(self, value: int) -> None:
        self.inside.message_bytes_max = value

    @property
    def takes_turns(self) -> bool:
        return self.inside.takes_turns

    @takes_turns.setter
    def takes_turns(self, value: bool) -> None:
        self.inside.takes_turns = value

    async def _meet(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.is_down:
            raise BusUnavailable("a test has made the bus unavailable")

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        await self._meet()
        await self.inside.declare(subscriptions)

    def refusal(self, message: Message) -> Refused | None:
        return Refused(self.refusal_reason) if self.refusal_reason else self.inside.refusal(message)

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        await self._meet()
        if self.refusal_reason:
            return [Refused(self.refusal_reason) for _ in messages]
        lost = min(self.lost_messages, len(messages))
        self.lost_messages -= lost
        self.published += len(messages) - lost
        answers = [None] * lost + await self.inside.publish(messages[lost:])
        if self.lost_answers:
            self.lost_answers -= 1
            raise BusUnavailable("a test has dropped the answer")
        return answers

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        await self._meet()
        taken = await self.inside.receive(topics, subscription, limit, lock_seconds, wait_seconds)
        return [delivery for delivery in taken for _ in range(2)] if self.doubles_deliveries else taken

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._meet()
        if self.loses_settling:
            self.settled_in_vain.update(refs)
        else:
            await self.inside.settle(refs)

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        await self._meet()
        return set() if self.withdraws_nothing else await self.inside.withdraw(refs)

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        await self._meet()
        await self.inside.abandon(refs, delay_seconds)

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        await self._meet()
        return await self.inside.renew(refs, lock_seconds)

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        await self._meet()
        await self.inside.dead_letter(refs, reason)

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        await self._meet()
        return await self.inside.still_queued(refs)

    async def depths(self) -> list[Depth]:
        await self._meet()
        return await self.inside.depths()

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        await self._meet()
        return await self.inside.dead_letters(limit, topics)

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        await self._meet()
        return await self.inside.send_again(letters)

    async def health(self) -> str:
        await self._meet()
        return await self.inside.health()

    async def upkeep(self) -> None:
        await self._meet()
        await self.inside.upkeep()


class FaultyLedger:
    """Does not open or close the ledger inside."""

    def __init__(self, inside: Ledger) -> None:
        self.inside = inside
        self.is_down = False
        """Every call raises `LedgerUnavailable`."""
        self.delay_seconds = 0.0
        """Every call takes this much longer."""
        self.conflicts = 0
        """This many of the next changes are answered with `Conflict` and not written."""
        self.lost_answers = 0
        """This many of the next commits are made and answered with `LedgerUnavailable`, as when a connection breaks
        during one. The port rules this out, but no network does."""

    async def __aenter__(self) -> FaultyLedger:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def _meet(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.is_down:
            raise LedgerUnavailable("a test has made the ledger unavailable")

    def enlists(self, bus: Bus) -> bool:
        return self.inside.enlists(bus)

    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        await self._meet()
        return await self.inside.load(job_ids)

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        await self._meet()
        updates = [change for change in changes if change.before is not None]
        turned_away = {change.after.job_id for change in updates[: self.conflicts]}
        self.conflicts -= len(turned_away)
        kept = [change for change in changes if change.after.job_id not in turned_away]
        loses_answer = self.lost_answers > 0  # Told now: a commit that has begun earlier is not one of the next.
        self.lost_answers -= loses_answer
        outcomes = dict(zip([c.after.job_id for c in kept], await self.inside.commit(kept), strict=True))
        if loses_answer:
            raise LedgerUnavailable("a test has dropped the answer")
        return [outcomes.get(change.after.job_id, Conflict()) for change in changes]

    async def note_holder(
        self, job_id: str, step_index: int, attempt_no: int, lease_id: str, instance: str
    ) -> str | None:
        await self._meet()
        return await self.inside.note_holder(job_id, step_index, attempt_no, lease_id, instance)

    async def due(self, now: Instant, limit: int) -> list[str]:
        await self._meet()
        return await self.inside.due(now, limit)

    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        await self._meet()
        return await self.inside.undispatched(now, limit, ignore_claims)

    async def held(self, line: HeldLine, engine: str, limit: int) -> list[str]:
        await self._meet()
        return await self.inside.held(line, engine, limit)

    async def held_lines(self, limit: int) -> list[HeldLine]:
        await self._meet()
        return await self.inside.held_lines(limit)

    async def unacknowledged(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        await self._meet()
        return await self.inside.unacknowledged(engine, limit, after_id)

    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        await self._meet()
        return await self.inside.wait_causes(job_ids)

    async def undelivered(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        await self._meet()
        return await self.inside.undelivered(engine, limit, after_id)

    async def outbox(self, limit: int) -> list[OutboxRow | UnreadableJob]:
        await self._meet()
        return await self.inside.outbox(limit)

    async def find_claim(self, key: bytes) -> Duplicate | None:
        await self._meet()
        return await self.inside.find_claim(key)

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job | UnreadableJob]:
        await self._meet()
        return await self.inside.jobs(filter_, limit, before_id)

    async def dismiss(self, closing: Closing) -> Closing:
        await self._meet()
        return await self.inside.dismiss(closing)

    async def closings(self, job_ids: Sequence[str]) -> dict[str, Closing]:
        await self._meet()
        return await self.inside.closings(job_ids)

    async def matching(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[JobKey]:
        await self._meet()
        return await self.inside.matching(filter_, limit, before_id)

    async def tally(self, filter_: JobFilter, oldest: int, limit: int) -> Tally:
        await self._meet()
        return await self.inside.tally(filter_, oldest, limit)

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, str]:
        await self._meet()
        return await self.inside.statuses(job_ids)

    async def find_claims(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        await self._meet()
        return await self.inside.find_claims(keys)

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        await self._meet()
        return await self.inside.attempts(job_id)

    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        await self._meet()
        return await self.inside.events(job_id, after_seq, limit)

    async def inflight(self) -> dict[str, int]:
        await self._meet()
        return await self.inside.inflight()

    async def counts(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, int]:
        await self._meet()
        return await self.inside.counts(since, tenants)

    async def counts_by_tenant(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, dict[str, int]]:
        await self._meet()
        return await self.inside.counts_by_tenant(since, tenants)

    async def count_refused(self, at: Instant, refused: Mapping[str, int]) -> None:
        await self._meet()
        await self.inside.count_refused(at, refused)

    async def open_groups(self, scanned_max: int, tenants: Sequence[str] | None) -> OpenGroups:
        await self._meet()
        return await self.inside.open_groups(scanned_max, tenants)

    async def step_millis(
        self, request_type: str, tenants: Sequence[str] | None, limit: int
    ) -> list[Mapping[str, int]]:
        await self._meet()
        return await self.inside.step_millis(request_type, tenants, limit)

    async def oldest_waiting(self, tenants: Sequence[str] | None) -> dict[str, str]:
        await self._meet()
        return await self.inside.oldest_waiting(tenants)

    async def count_wait_causes(self, tenants: Sequence[str] | None) -> dict[str, int]:
        await self._meet()
        return await self.inside.count_wait_causes(tenants)

    async def failures(self, filter_: JobFilter, scanned_max: int, limit: int) -> FailureGroups:
        await self._meet()
        return await self.inside.failures(filter_, scanned_max, limit)

    async def webhooks_due(
        self, now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int
    ) -> list[Webhook]:
        await self._meet()
        return await self.inside.webhooks_due(now, after_tenant, tenants_max, per_tenant_max)

    async def claim_webhooks(self, job_ids: Sequence[str], now: Instant, claim_until: Instant) -> set[str]:
        await self._meet()
        return await self.inside.claim_webhooks(job_ids, now, claim_until)

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        await self._meet()
        await self.inside.webhook_done(webhook, delivered)

    async def shorten_webhooks(self, latest: Sequence[Instant]) -> None:
        await self._meet()
        await self.inside.shorten_webhooks(latest)

    async def repair(self, now: Instant, claim_seconds: float) -> Repairs:
        await self._meet()
        return await self.inside.repair(now, claim_seconds)

    async def prunable(
        self,
        ended_before: Instant,
        limit: int,
        tenants: Sequence[str] | None = None,
        except_tenants: Sequence[str] = (),
    ) -> list[JobKey]:
        await self._meet()
        return await self.inside.prunable(ended_before, limit, tenants, except_tenants)

    async def prune(self, ended_before: Instant, limit: int, job_ids: Sequence[str] | None = None) -> int:
        await self._meet()
        return await self.inside.prune(ended_before, limit, job_ids)

    async def note_act(self, act: AuditEntry) -> None:
        await self._meet()
        await self.inside.note_act(act)

    async def prune_audit(self, before: Instant, limit: int) -> None:
        await self._meet()
        await self.inside.prune_audit(before, limit)

    async def health(self) -> str:
        await self._meet()
        return await self.inside.health()
