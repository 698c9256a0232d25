"""Accepting commands: validate, claim, make room, start. One command, one job, or an error with every fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from lucius.domain.envelope import EnvelopeRules, tenant_of
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import Bus, Subscription
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, NewJob, Started
from lucius.ports.ledger import Duplicate, Ledger, LedgerUnavailable, Saturated
from lucius.ports.observer import Observer
from lucius.ports.registry import Registry, RegistrySnapshot
from lucius.usecases.rates import RateLimits
from lucius.usecases.submit import Command, prepare, to_accepted

SATURATED_RETRY_SECONDS = 1.0

MayUse = Callable[[str], bool]
"""Whether the caller may act for a tenant, given in normal form."""


class Taken(Struct, frozen=True):
    """A command that is a job now, or was one already."""

    job_id: str
    status: str
    replayed: bool


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
        workspace_root: str,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._registry = registry
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._rules = rules
        self._workspace_root = workspace_root
        self._rates = RateLimits(clock)
        self._declared: str | None = None

    async def submit(self, document: object, may_use: MayUse) -> Taken:
        """Make a job of an envelope."""
        try:
            snapshot = await self._current()
            command = self._check(document, may_use, snapshot)
            return self._taken(command, await self._start(command, snapshot))
        except LuciusError as error:
            self._observer.command_refused(error.code)
            raise

    async def submit_many(self, documents: Sequence[object], may_use: MayUse) -> list[Taken | LuciusError]:
        """Make jobs of envelopes that stand alone: each is taken or refused for itself, and all share their turns."""
        snapshot = await self._current()
        started: list[tuple[Command, Awaitable[Any]] | LuciusError] = []
        for document in documents:
            try:
                command = self._check(document, may_use, snapshot)
                started.append((command, self._start(command, snapshot)))
            except LuciusError as error:
                started.append(error)
        return [await self._finish(one) for one in started]

    async def _finish(self, one: tuple[Command, Awaitable[Any]] | LuciusError) -> Taken | LuciusError:
        try:
            if isinstance(one, LuciusError):
                raise one
            command, answer = one
            return self._taken(command, await answer)
        except LuciusError as error:
            self._observer.command_refused(error.code)
            return error

    async def validate(self, document: object, may_use: MayUse) -> Command:
        """Say what would become of an envelope, and create nothing."""
        snapshot = await self._current()
        _check_tenant(document, may_use)
        return prepare(document, snapshot, self._rules, self._clock.now())

    async def declare(self) -> None:
        """Make sure that every service has its subscription on every lane."""
        await self._current()

    async def _current(self) -> RegistrySnapshot:
        """The registry as it is now, with every service it names subscribed before anything is sent to it."""
        snapshot = self._registry.snapshot()
        if snapshot.version != self._declared:
            services = sorted({step.service for protocol in snapshot.protocols.values() for step in protocol.steps})
            await self._bus.declare(
                [
                    Subscription(topic=topic, name=service, where={"service": service})
                    for topic in LANE_TOPICS
                    for service in services
                ]
            )
            self._declared = snapshot.version
        return snapshot

    def _check(self, document: object, may_use: MayUse, snapshot: RegistrySnapshot) -> Command:
        _check_tenant(document, may_use)
        return prepare(document, snapshot, self._rules, self._clock.now())

    def _start(self, command: Command, snapshot: RegistrySnapshot) -> Awaitable[Started | Duplicate | Saturated]:
        own = command.tenant.requests_per_second if command.tenant is not None else None
        rate = own if own is not None else snapshot.settings.requests_per_second
        if rate is not None:
            try:
                self._rates.take(command.tenant_id, rate)
            except CallerError as refusal:
                return self._known(command, refusal)
        fact = to_accepted(command, self._clock.job_id(), self._clock.now(), self._workspace_root)
        return self._engine.submit(NewJob(fact=fact, claim=command.claim, limits=command.limits))

    async def _known(self, command: Command, refusal: CallerError) -> Duplicate:
        """A duplicate is answered before limits are checked: one that comes too soon as well."""
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
                detail = f"this key belongs to job {job_id}, which was made of a different command"
                raise CallerError.of("IDEMPOTENCY_KEY_REUSED", detail, "/idempotency_key")
            case Saturated(limit=limit):
                detail = (
                    f"{limit.maximum} jobs are in flight in scope {limit.scope} already; send the command again later"
                )
                raise CallerError.of(limit.code, detail, retry_after_seconds=SATURATED_RETRY_SECONDS)


def _check_tenant(document: object, may_use: MayUse) -> None:
    """Before all else: a caller learns nothing about tenants that are not its own."""
    tenant = tenant_of(document)
    if tenant is not None and not may_use(tenant):
        raise CallerError.of("TENANT_FORBIDDEN", "the caller may not act for this tenant", "/tenant_id")
