"""The ledger port: the record of jobs, steps, attempts, outbox, events, idempotency and in-flight slots.

One verb writes: `commit`. An SQL ledger makes all changes of a call one transaction; a ledger whose transactions end at
a partition (Azure Tables) makes one per change. Either way each change stands or falls whole, and the engine reads one
outcome per change, so its loop is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.ports.bus import Bus, DeliveryRef, Message


class LedgerUnavailable(Exception):
    """The ledger is out of reach, full or locked; nothing of the call was written."""


class Limit(Struct, frozen=True):
    """At most `maximum` jobs in flight in this scope; `code` is the error where it is full."""

    scope: str
    maximum: int
    code: str


class Claim(Struct, frozen=True):
    """A command's claim to be the only one of its kind: unique per key, for as long as its job is kept."""

    key: bytes
    hash: str


class Webhook(Struct, frozen=True, kw_only=True):
    """A call to a client's address that is owed until it is answered or given up."""

    job_id: str
    url: str
    tenant_id: str
    attempts: int = 0
    next_at: Instant
    last_error: str | None = None


class Change(Struct, frozen=True, kw_only=True):
    """One job's new state, with all that must be written with it or not at all."""

    before: Job | None
    """The state the decision was made on; None creates the job."""
    after: Job
    events: tuple[Event, ...] = ()
    claim: Claim | None = None
    limits: tuple[Limit, ...] = ()
    """Checked where the job is created; its scopes are left again by the change that ends it."""
    messages: tuple[Message, ...] = ()
    settled: tuple[DeliveryRef, ...] = ()
    """Messages to publish and to settle in the same transaction; only where `enlists` says yes."""
    webhook: Webhook | None = None


class Committed(Struct, frozen=True):
    """Written, durably. The job's revision is one more than before."""


class Conflict(Struct, frozen=True):
    """The job is no longer what `before` says: load it and decide again."""


class Duplicate(Struct, frozen=True):
    """The claim is taken: by this job, with this hash."""

    job_id: str
    hash: str
    status: str


class Saturated(Struct, frozen=True):
    """A limit is reached."""

    limit: Limit


CommitOutcome = Committed | Conflict | Duplicate | Saturated


class JobFilter(Struct, frozen=True, kw_only=True):
    tenants: tuple[str, ...] | None = None
    """Only these tenants; None is all of them."""
    status: str | None = None
    request_type: str | None = None
    created_from: Instant | None = None
    created_to: Instant | None = None
    dead_letter: bool = False
    open_on: str | None = None
    """Only jobs that have not ended and are driven by this engine."""


class OutboxRow(Struct, frozen=True, kw_only=True):
    job_id: str
    step_id: str
    tenant_id: str
    lane: int
    attempt: Attempt


class Repairs(Struct, frozen=True):
    """What drift repair found and mended, by kind."""

    slots: int = 0
    wake_ups: int = 0
    outbox: int = 0


class Ledger(AbstractAsyncContextManager["Ledger"], Protocol):
    def enlists(self, bus: Bus) -> bool:
        """Whether messages in a change are handed to this bus in the same transaction."""
        ...

    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """The whole aggregates of those jobs that exist."""
        ...

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        """Write each change whole or not at all; one outcome for each, in order. At most one change per job in a
        call. A creation first looks at its claim (`Duplicate`), then at its limits (`Saturated`); any other change
        is written only if the job's revision is still that of `before` (`Conflict`). In-flight counts move with the
        jobs. When the call returns, what was committed survives a crash. Raises `LedgerUnavailable`, and then
        nothing was written."""
        ...

    async def due(self, now: Instant, limit: int) -> list[str]:
        """Jobs of the outbox engine whose `wake_at` has come, the longest overdue first."""
        ...

    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        """Jobs of the outbox engine whose current attempt is unsent and claimed by nobody at `now`."""
        ...

    async def outbox(self, limit: int) -> list[OutboxRow]:
        """Unsent attempts, oldest first."""
        ...

    async def find_claim(self, key: bytes) -> Duplicate | None:
        """Who holds this claim."""
        ...

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job]:
        """Newest first; `before_id` goes on after the last one seen."""
        ...

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        """Every attempt of every step, by step id, oldest first."""
        ...

    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        """The audit trail, in order. A number that was seen is never followed by a smaller one."""
        ...

    async def inflight(self) -> dict[str, int]:
        """Jobs in flight by scope: `global`, `mode:<MODE>`, `tenant:<id>`; scopes with none may be missing."""
        ...

    async def webhooks_due(self, now: Instant, limit: int, claim_until: Instant) -> list[Webhook]:
        """Take up webhooks that are due: nobody else gets them before `claim_until`."""
        ...

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        """Write what came of a call: delivered or given up (then it is no longer owed), or to be tried again."""
        ...

    async def repair(self, now: Instant) -> Repairs:
        """Mend what a crash between two writes can leave behind: counts that differ from the jobs, jobs that
        wait without a timer or an unsent row (the outbox engine's), unsent rows that belong to no open job."""
        ...

    async def prune(self, ended_before: Instant, limit: int) -> int:
        """Remove up to `limit` jobs that ended before this moment, with all that belongs to them; how many went."""
        ...

    async def health(self) -> dict[str, Any]:
        """Answers if the ledger does; raises `LedgerUnavailable` if it does not."""
        ...
