"""Accepts commands: validate, claim, check limits, start. A command becomes one job, or an error with every fault."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.envelope import EnvelopeRules, tenant_of
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.domain.job import JOB_TERMINAL, Job
from lucius.domain.routing import normal_form
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, NewJob, Started
from lucius.ports.ledger import Duplicate, Ledger, LedgerUnavailable, Saturated
from lucius.ports.observer import Observer
from lucius.ports.rate_gate import Grant, RateGate
from lucius.ports.registry import Registry, RegistrySnapshot
from lucius.ports.tenant_files import TenantFiles
from lucius.usecases.command_of_job import command_of
from lucius.usecases.lane_subscriptions import lane_subscriptions
from lucius.usecases.pacing import Pace
from lucius.usecases.rates import RateLimits, rate_refusal
from lucius.usecases.submit import Command, prepare, to_accepted

SATURATED_RETRY_SECONDS = 1.0

MayUse = Callable[[str], bool]
"""Whether the caller may act for a tenant, given in normal form."""


class Taken(Struct, frozen=True):
    """A command that became a job, now or earlier."""

    job_id: str
    status: str
    replayed: bool
    ended: Job | None = None
    """The job, if the command was repeated after it had ended."""


class Acceptance:
    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        registry: Registry,
        bus: Bus,
        clock: Clock,
        observer: Observer,
        rules: EnvelopeRules,
        files: TenantFiles,
        gate: RateGate | None = None,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._registry = registry
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._rules = rules
        self._files = files
        self.rates = RateLimits(clock, gate)
        self._declared: str | None = None

    async def submit(self, document: object, may_use: MayUse) -> Taken:
        """Create a job from an envelope."""
        try:
            snapshot = await self._current()
            command = self._check(document, may_use, snapshot)
            rate = _rate_of(command, snapshot)
            passes = await self._passes([(command.tenant_id, rate)]) if rate is not None else None
            return (await self._with_ends([self._taken(command, await self._start(command, rate, passes))]))[0]
        except LuciusError as error:
            self._observer.command_refused(error.code, _tenant_of(document))
            raise

    async def submit_many(self, documents: Sequence[object], may_use: MayUse) -> list[Taken | LuciusError]:
        """Create jobs from independent envelopes: each is accepted or rejected by itself, and all share their turns."""
        snapshot = await self._current()
        checked: list[tuple[Command, float | None] | LuciusError] = []
        pace = Pace()
        for document in documents:
            if pace.is_over():
                await pace.rest()
            try:
                command = self._check(document, may_use, snapshot)
                checked.append((command, _rate_of(command, snapshot)))
            except LuciusError as error:
                checked.append(error)
        rated = [one for one in checked if not isinstance(one, LuciusError)]
        passes = await self._passes([(command.tenant_id, rate) for command, rate in rated if rate is not None])
        started: list[tuple[Command, Awaitable[Any]] | LuciusError] = []
        for one in checked:
            if pace.is_over():
                await pace.rest()
            try:
                started.append(one if isinstance(one, LuciusError) else (one[0], self._start(*one, passes)))
            except LuciusError as error:
                started.append(error)
        finished = [await self._finish(document, outcome) for document, outcome in zip(documents, started, strict=True)]
        told = iter(await self._with_ends([one for one in finished if isinstance(one, Taken)]))
        return [next(told) if isinstance(one, Taken) else one for one in finished]

    async def _with_ends(self, taken: Sequence[Taken]) -> list[Taken]:
        """How those jobs ended that had ended before their command was repeated."""
        ids = {one.job_id for one in taken if one.replayed and one.status in JOB_TERMINAL}
        if not ids:
            return list(taken)
        try:
            ended = await self._ledger.load(sorted(ids))
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        return [replace(one, ended=ended.get(one.job_id)) if one.replayed else one for one in taken]

    async def _finish(
        self, document: object, started: tuple[Command, Awaitable[Any]] | LuciusError
    ) -> Taken | LuciusError:
        try:
            if isinstance(started, LuciusError):
                raise started
            command, answer = started
            return self._taken(command, await answer)
        except LuciusError as error:
            self._observer.command_refused(error.code, _tenant_of(document))
            return error

    async def validate(self, document: object, may_use: MayUse) -> Command:
        """The command in an envelope, with every check of `submit`. Creates nothing."""
        return self._check(document, may_use, await self._current())

    async def with_payload(self, job: Job, payload: object, may_use: MayUse) -> NewJob:
        """The command of a job with another payload, to redrive it with. Checked like any command, under the protocol
        of today; it keeps the key, correlation id and trace of the job. Starts nothing."""
        spec = job.spec
        kept = {
            "idempotency_key": spec.idempotency_key, "correlation_id": spec.correlation_id,
            "traceparent": spec.traceparent,
        }  # fmt: skip
        document = {**command_of(job, None), **kept, "payload": payload}
        new = self._new_job(await self.validate(document, may_use))
        again = replace(new.fact.spec, redrive_of=job.job_id)
        return replace(new, fact=replace(new.fact, spec=again, has_new_payload=True))

    async def declare(self) -> None:
        """Make sure that every service has its subscription on every lane."""
        await self._current()

    async def _current(self) -> RegistrySnapshot:
        """The current registry, with every service it names subscribed before anything is sent to it."""
        snapshot = self._registry.snapshot()
        if snapshot.version != self._declared:
            await self._bus.declare(lane_subscriptions(snapshot))
            self._declared = snapshot.version
        return snapshot

    def _check(self, document: object, may_use: MayUse, snapshot: RegistrySnapshot) -> Command:
        tenant_id = tenant_of(document)
        # Checked first: a caller must not find out anything about other tenants.
        if tenant_id is not None and not may_use(tenant_id):
            raise CallerError.of("TENANT_FORBIDDEN", "the caller may not act for this tenant", "/tenant_id")
        return prepare(document, tenant_id, snapshot, self._rules, self._files, self._clock.now())

    async def _passes(self, asked: Sequence[tuple[str, float]]) -> dict[str, Grant]:
        """How many of a tenant's commands pass its rate: one question for each tenant."""
        counts = Counter(asked)
        granted = await asyncio.gather(*(self.rates.take(*one, count) for one, count in counts.items()))
        return {tenant_id: grant for (tenant_id, _), grant in zip(counts, granted, strict=True)}

    def _start(
        self, command: Command, rate: float | None, passes: dict[str, Grant] | None
    ) -> Awaitable[Started | Duplicate | Saturated]:
        """`passes` is counted down."""
        if rate is not None and passes is not None:
            grant = passes[command.tenant_id]
            if grant.count == 0:
                return self._known(command, rate_refusal(rate, grant))
            passes[command.tenant_id] = replace(grant, count=grant.count - 1)
        return self._engine.submit(self._new_job(command))

    def _new_job(self, command: Command) -> NewJob:
        workspace = self._files.workspace(command.tenant_id)
        fact = to_accepted(command, self._clock.job_id(), self._clock.now(), workspace)
        return NewJob(fact=fact, claim=command.claim, limits=command.limits)

    async def _known(self, command: Command, refusal: CallerError) -> Duplicate:
        """A duplicate is answered even if it exceeds the rate limit."""
        try:
            known = await self._ledger.find_claim(command.claim.key)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        if known is None:
            raise refusal
        return known

    @staticmethod
    def _taken(command: Command, outcome: Started | Duplicate | Saturated) -> Taken:
        match outcome:
            case Started(job_id=job_id, status=status):
                return Taken(job_id, status.value, False)
            case Duplicate(job_id=job_id, hash=hash_, status=status):
                if hash_ == command.idempotency_hash:
                    return Taken(job_id, status, True)
                detail = f"this key belongs to job {job_id}, which was created from a different command"
                raise CallerError.of("IDEMPOTENCY_KEY_REUSED", detail, "/idempotency_key")
            case Saturated(limit=limit):
                detail = (
                    f"{limit.maximum} jobs are already in flight in scope {limit.scope}; send the command again later"
                )
                raise CallerError.of(limit.code, detail, retry_after_seconds=SATURATED_RETRY_SECONDS)


def _rate_of(command: Command, snapshot: RegistrySnapshot) -> float | None:
    own = command.tenant.requests_per_second if command.tenant is not None else None
    return own if own is not None else snapshot.settings.requests_per_second


def _tenant_of(document: object) -> str | None:
    """The tenant that a refused envelope names, in normal form, if it names one."""
    tenant_id = document.get("tenant_id") if isinstance(document, dict) else None
    return normal_form(tenant_id) if isinstance(tenant_id, str) else None
