"""The ledger port: the record of jobs, steps, attempts, outbox, events, idempotency and in-flight slots.

Only `commit` writes. An SQL ledger puts all changes of a call in one transaction; a ledger whose transactions are
limited to a partition (Azure Tables) uses one per change. Either way each change is atomic, and the engine gets one
outcome per change, so its loop is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.routing import Routing
from lucius.domain.search import SearchValue
from lucius.domain.time import Instant
from lucius.ports.bus import Bus, DeliveryRef, Message

if TYPE_CHECKING:
    from lucius.ports.audit import AuditEntry

REFUSED = "REFUSED"
"""In counts: commands that were refused for a limit. They did not become jobs."""


class LedgerUnavailable(Exception):
    """The ledger is unreachable, full or locked; the call wrote nothing."""


class Limit(Struct, frozen=True):
    """At most `maximum` jobs in flight in this scope; `code` is the error if it is full."""

    scope: str
    maximum: int
    code: str


class Claim(Struct, frozen=True):
    """The idempotency claim of a command: unique per key, for as long as its job is kept."""

    key: bytes
    hash: str


class Webhook(Struct, frozen=True, kw_only=True):
    """A call to a client's address that is pending until it is answered or given up."""

    job_id: str
    url: str
    tenant_id: str
    attempts: int = 0
    next_at: Instant
    last_error: str | None = None
    asked_wait_ms: int = 0
    """The `Retry-After` of the receiver's last answer. Only written."""


class Change(Struct, frozen=True, kw_only=True):
    """One job's new state, and everything that must be written atomically with it."""

    before: Job | None
    """The state that the decision is based on; None creates the job."""
    after: Job
    events: tuple[Event, ...] = ()
    past_attempts: tuple[tuple[int, Attempt], ...] = ()
    """Attempts, with the index of their step, that ended and were followed by others since `before`."""
    claim: Claim | None = None
    limits: tuple[Limit, ...] = ()
    """Checked when the job is created; the change that ends the job releases its scopes."""
    messages: tuple[Message, ...] = ()
    settled: tuple[DeliveryRef, ...] = ()
    """Messages to publish and to settle in the same transaction; only if `enlists` returns True."""
    webhook: Webhook | None = None


def followed_attempts(before: Job, after: Job) -> Iterator[tuple[int, Attempt]]:
    """The attempts of `before` that another attempt has followed in `after`, with the index of their step."""
    for index, (was, now) in enumerate(zip(before.steps, after.steps, strict=True)):
        if was is not now and was.attempt is not None and was.attempt_no != now.attempt_no:
            yield index, was.attempt


class Committed(Struct, frozen=True):
    """Written, durably. The job's revision is one more than before."""


class Conflict(Struct, frozen=True):
    """The job is no longer as in `before`: load it and decide again."""


class Duplicate(Struct, frozen=True):
    """The claim is taken by this job, with this hash."""

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
    statuses: tuple[str, ...] | None = None
    """Only jobs in one of these states; not together with `status`."""
    request_type: str | None = None
    created_from: Instant | None = None
    created_to: Instant | None = None
    error_signature: str | None = None
    """Only jobs that failed for this reason."""
    dead_letter: bool = False
    """Only jobs that failed for good and have no `Closing`: nobody has redriven or dismissed them."""
    dismissed: bool = False
    """Only dead letters that were dismissed."""
    unclosed: bool = False
    """Only jobs without a `Closing`, whatever their state."""
    wait_cause: str | None = None
    """Only jobs that have not ended and wait for this: see `domain.waiting`."""
    open_on: str | None = None
    """Only jobs that have not ended and are driven by this engine."""
    job_id: str | None = None
    """Only this one."""
    job_id_prefix: str | None = None
    """Only jobs whose ids begin with these characters: a range of ids, since they sort by them."""
    correlation_id: str | None = None
    """Only jobs with this correlation id; a job that was given none has its own id."""
    idempotency_key: str | None = None
    """Only jobs accepted under this key of their tenant. A redrive has no claim on the key of the job it repeats."""
    search: SearchValue | None = None
    """Only jobs with this value among `JobSpec.searchable`."""


class Closing(Struct, frozen=True, kw_only=True):
    """Why a dead letter is no longer listed: its job was redriven, or somebody dismissed it. A record of its own, for
    the job has ended and is never rewritten."""

    job_id: str
    at: Instant
    by: str | None = None
    reason: str | None = None
    """Who dismissed it, and why."""
    redriven_as: str | None = None
    """The first job that redrives it, unless it was dismissed before."""


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Jobs that failed for the same reason."""

    error_signature: str | None
    jobs: int
    tenants: int
    first_at: Instant
    last_at: Instant
    """When the first and the last of them ended."""
    newest_id: str


class FailureGroups(Struct, frozen=True):
    groups: list[FailureGroup]
    """The largest first."""
    scanned: int
    """Failed jobs that were looked at."""
    is_cut_off: bool
    """Whether there are more, older than those."""


class OpenGroup(Struct, frozen=True, kw_only=True):
    """Open jobs of one tenant, on one lane, under one version of a protocol."""

    protocol_id: str
    protocol_version: int
    lane: int
    tenant_id: str
    jobs: int


class OpenGroups(Struct, frozen=True):
    groups: list[OpenGroup]
    is_cut_off: bool
    """Whether there are more open jobs than were looked at."""


class JobKey(Struct, frozen=True):
    job_id: str
    tenant_id: str


class Tally(Struct, frozen=True):
    jobs: int
    """As many as match, but no more than was asked for."""
    oldest: list[JobKey]


class UnreadableJob(Struct, frozen=True):
    """A job whose rows cannot be read, because something other than LUCIUS has changed them."""

    job_id: str
    tenant_id: str
    reason: str
    """For the log: it may quote values of the rows."""


class OutboxRow(Struct, frozen=True, kw_only=True):
    job_id: str
    step_id: str
    service: str
    tenant_id: str
    routing: Routing
    attempt: Attempt


class HeldLine(Struct, frozen=True):
    """Directives of one tenant for one service on one lane: they share a cap on what is unacknowledged."""

    tenant_id: str
    lane: int
    service: str


class Repairs(Struct, frozen=True):
    """What drift repair found and repaired, by kind."""

    slots: int = 0
    wake_ups: int = 0
    outbox: int = 0


class Ledger(AbstractAsyncContextManager["Ledger"], Protocol):
    def enlists(self, bus: Bus) -> bool:
        """Whether messages in a change are published to this bus in the same transaction."""
        ...

    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """The whole aggregates of those jobs that exist and can be read."""
        ...

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        """Write each change atomically; one outcome for each, in order. At most one change per job in a call. A
        creation first checks its claim (`Duplicate`), then its limits (`Saturated`), and closes the dead letter of the
        job that it redrives, unless that is closed already; any other change is written only
        if the job's revision is still that of `before` (`Conflict`). In-flight counts change with the jobs. When the
        call returns, committed changes survive a crash. Raises `LedgerUnavailable`, and then nothing was written."""
        ...

    async def note_holder(
        self, job_id: str, step_index: int, attempt_no: int, lease_id: str, instance: str
    ) -> str | None:
        """Record in `acked_by` which instance of a service has an attempt whose ACK or RESULT is not written yet,
        unless one is recorded already. Returns the recorded instance, or None if there is no such attempt. The job's
        revision does not change, and commits keep `acked_by` until they write the ACK or the RESULT."""
        ...

    async def due(self, now: Instant, limit: int) -> list[str]:
        """Jobs of the outbox engine whose `wake_at` has passed, the longest overdue first."""
        ...

    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        """Jobs of the outbox engine whose current attempt is unsent, not held, and unclaimed at `now`."""
        ...

    async def held(self, line: HeldLine, engine: str, limit: int) -> list[str]:
        """Jobs of this engine whose current attempt is held in this line, the oldest first."""
        ...

    async def held_lines(self, limit: int) -> list[HeldLine]:
        """The lines in which attempts are held. Its cost depends on the number of lines, not on that of attempts."""
        ...

    async def unacknowledged(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        """Open jobs of this engine that wait for the bus or for an ACK, by id; `after_id` continues after that job."""
        ...

    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        """What those of these jobs that exist wait for, see `domain.waiting`."""
        ...

    async def undelivered(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        """Open jobs of this engine whose current attempt is unsent, or whose current step waits for another attempt,
        by id; `after_id` continues after that job."""
        ...

    async def outbox(self, limit: int) -> list[OutboxRow | UnreadableJob]:
        """Unsent attempts, oldest first."""
        ...

    async def find_claim(self, key: bytes) -> Duplicate | None:
        """The job that has this claim."""
        ...

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job | UnreadableJob]:
        """Newest first; `before_id` continues after that job. A job that cannot be read does not affect the others."""
        ...

    async def dismiss(self, closing: Closing) -> Closing:
        """Close a dead letter, durably, unless it is closed already; returns the closing that counts, the first."""
        ...

    async def closings(self, job_ids: Sequence[str]) -> dict[str, Closing]:
        """The closings of those of these jobs that have one."""
        ...

    async def matching(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[JobKey]:
        """Like `jobs`, but only who they are: many at little cost. Jobs that cannot be read are among them."""
        ...

    async def tally(self, filter_: JobFilter, oldest: int, limit: int) -> Tally:
        """How many jobs match, `limit` at most, and who the `oldest` of them are, the oldest first. Jobs that cannot be
        read are among them. In SQL it costs no more than to go along an index."""
        ...

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, str]:
        """The states of those of these jobs that exist."""
        ...

    async def find_claims(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """The ids of the jobs that have these claims, by claim."""
        ...

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        """Every attempt of every step, by step id, oldest first."""
        ...

    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        """The audit trail, in order. Sequence numbers only increase. If the data of an event cannot be read, its
        `data` is `{"error": …}`."""
        ...

    async def inflight(self) -> dict[str, int]:
        """Jobs in flight by scope: `global`, `mode:<MODE>`, `tenant:<id>`; scopes with none may be missing."""
        ...

    async def counts(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, int]:
        """Jobs accepted (`ACCEPTED`) and ended (by state) since the minute of this time, of these tenants or of all.
        Kept as counts, so that jobs that are pruned stay counted."""
        ...

    async def counts_by_tenant(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, dict[str, int]]:
        """The same by tenant, and how many commands were refused for a limit (`REFUSED`)."""
        ...

    async def count_refused(self, at: Instant, refused: Mapping[str, int]) -> None:
        """Add to the commands of tenants that were refused for a limit in the minute of this time."""
        ...

    async def open_groups(self, scanned_max: int, tenants: Sequence[str] | None) -> OpenGroups:
        """Open jobs by protocol version, lane and tenant. Looks at `scanned_max` of them at most."""
        ...

    async def oldest_waiting(self, tenants: Sequence[str] | None) -> dict[str, str]:
        """By tenant, the oldest open job that no service is working on."""
        ...

    async def count_wait_causes(self, tenants: Sequence[str] | None) -> dict[str, int]:
        """Open jobs by what they wait for."""
        ...

    async def step_millis(
        self, request_type: str, tenants: Sequence[str] | None, limit: int
    ) -> list[Mapping[str, int]]:
        """Of up to `limit` of the newest jobs of this type that succeeded: how long each step took, by its id."""
        ...

    async def failures(self, filter_: JobFilter, scanned_max: int, limit: int) -> FailureGroups:
        """Failed jobs by reason; of the filter, `tenants`, `created_from` and `dead_letter` count. Looks at the
        `scanned_max` newest at most."""
        ...

    async def webhooks_due(
        self, now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int
    ) -> list[Webhook]:
        """Due webhooks, so that no tenant hides another: up to `per_tenant_max` of each, the longest due first, of up
        to `tenants_max` tenants in the order of their ids, starting after `after_tenant` and wrapping around."""
        ...

    async def claim_webhooks(self, job_ids: Sequence[str], now: Instant, claim_until: Instant) -> set[str]:
        """Claim those of these webhooks that are still due: no other process gets them before `claim_until`."""
        ...

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        """Write the outcome of a call: delivered or given up (then it is no longer pending), or to be tried again."""
        ...

    async def shorten_webhooks(self, latest: Sequence[Instant]) -> None:
        """Make no webhook wait longer than `latest` plus what its receiver asked for. `latest` is indexed by the number
        of calls made; its last entry also applies to larger numbers."""
        ...

    async def repair(self, now: Instant, claim_seconds: float) -> Repairs:
        """Repair what a crash between two writes can leave behind: counts that differ from the jobs, jobs that wait
        without a timer or an unsent row (of the outbox engine), unsent rows without an open job. Jobs that a clock
        which was ahead wrote, or that are claimed for longer than `claim_seconds`, are made due."""
        ...

    async def prunable(
        self,
        ended_before: Instant,
        limit: int,
        tenants: Sequence[str] | None = None,
        except_tenants: Sequence[str] = (),
    ) -> list[JobKey]:
        """Up to `limit` jobs that ended before this time and owe nothing: no webhook or notification of them is
        pending, and no job that redrives them is open. Of these tenants or of all, except some."""
        ...

    async def prune(self, ended_before: Instant, limit: int, job_ids: Sequence[str] | None = None) -> int:
        """Delete up to `limit` jobs that ended before this time and owe nothing (see `prunable`), with everything that
        belongs to them; returns the number. `job_ids`: only of these; without, audit entries from before this time go
        too."""
        ...

    async def note_act(self, act: AuditEntry) -> None:
        """Add an entry to the audit."""
        ...

    async def prune_audit(self, before: Instant, limit: int) -> None:
        """Delete up to `limit` audit entries from before this time, and what else the ledger keeps by time alone."""
        ...

    async def health(self) -> str:
        """A human-readable name of the ledger. Raises `LedgerUnavailable` if it does not answer."""
        ...
