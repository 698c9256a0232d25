"""What a process shows operators on its management port: its dependencies by name, and its metrics.

Each dependency contributes a `Check`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from lucius.auth import Authenticator
from lucius.clocks import DATABASE_CLOCK, STORAGE_CLOCK, ComparedClock, skew_problem
from lucius.notifiers.operators import Notifications
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.readiness import Check, NotReady
from lucius.ports.registry import Registry
from lucius.runbooks.opening import Runbooks, RunbooksOff
from lucius.sql.wakeups import Wakeups
from lucius.telemetry.metrics import MetricsObserver
from lucius.usecases.readiness import Readiness
from lucius.usecases.sightings import Sightings


class Management(Struct, frozen=True, kw_only=True):
    readiness: Readiness
    metrics: Callable[[], Awaitable[bytes]]
    """Current values, in Prometheus' text format."""


def manage(
    checks: Iterable[Check],
    metrics: MetricsObserver,
    ledger: Ledger,
    bus: Bus,
    runbooks: Runbooks | RunbooksOff,
    registry: Registry | None = None,
    sightings: Sightings | None = None,
    wakeups: Wakeups | None = None,
) -> Management:
    tables = None if isinstance(runbooks, RunbooksOff) else runbooks.turns.database

    async def text() -> bytes:
        snapshot = None
        if registry is not None:
            snapshot = registry.snapshot()
            metrics.show_registry(len(registry.problems), registry.stale_seconds)
        metrics.show_wakeups(wakeups is not None and wakeups.is_working)
        await metrics.collect(ledger, bus, snapshot, tables, sightings)
        return metrics.render()

    return Management(readiness=Readiness(checks), metrics=text)


def clock_check(clock: Clock, skew_seconds_max: float) -> Check:
    other = STORAGE_CLOCK if isinstance(clock, ComparedClock) else DATABASE_CLOCK

    async def check_clock() -> str:
        problem = skew_problem(clock.skew_seconds, skew_seconds_max, other)
        if problem is not None:
            raise NotReady(problem)
        return f"{clock.skew_seconds:+.3f} s"

    return Check(name="clock", look=check_clock)


def notifications_check(notifications: Notifications) -> Check:
    async def look() -> str:
        if notifications.problem is not None:
            raise NotReady(notifications.problem)
        return "recorded" if notifications.databases else "off"

    return Check(name="notifications", look=look, is_vital=False)


def wakeup_checks(wakeups: Wakeups) -> list[Check]:
    """None where processes cannot wake each other, or need not."""

    async def check_wakeups() -> str:
        if wakeups.problem is not None:
            raise NotReady(f"polls for what other processes do: {wakeups.problem}")
        return "woken by other processes" if wakeups.is_working else "connecting; polls until then"

    return [Check(name="wakeups", look=check_wakeups, is_vital=False)] if wakeups.is_used else []


def app_checks(
    ledger: Ledger,
    bus: Bus,
    engine: Engine,
    registry: Registry,
    authenticator: Authenticator,
    runbooks: Runbooks | RunbooksOff,
    schedules: bool,
) -> list[Check]:
    """If a check that is not vital fails, commands are still accepted and reads answered."""

    async def check_keys() -> str:
        if authenticator.problem is not None:
            raise NotReady(f"not reloaded, the last good ones are in force: {authenticator.problem}")
        return "in force"

    async def check_token_keys() -> str:
        if authenticator.token_problem is not None:
            raise NotReady(authenticator.token_problem)
        return "in force"

    checks = [
        Check(name="ledger", look=ledger.health),
        Check(name="bus", look=bus.health, is_vital=False),
        *engine.checks(),
        registry_check(registry),
        Check(name="api_keys", look=check_keys, is_vital=False),
        *_checks_of_runbooks(runbooks, schedules),
    ]
    if authenticator.accepts_tokens:
        checks.append(Check(name="token_keys", look=check_token_keys, is_vital=False))
    return checks


def _checks_of_runbooks(runbooks: Runbooks | RunbooksOff, schedules: bool) -> list[Check]:
    if isinstance(runbooks, RunbooksOff):
        why = runbooks.why

        async def say_why() -> str:
            return why

        return [Check(name="runbooks", look=say_why, is_vital=False)]
    checks = [Check(name="runbooks", look=runbooks.orchestrator.health, is_vital=False)]
    if schedules:
        checks.append(Check(name="scheduler", look=runbooks.scheduler.health, is_vital=False))
    return checks


def registry_check(registry: Registry) -> Check:
    async def look() -> str:
        if registry.problems:
            raise NotReady(f"not reloaded, the last good one is in force: {'; '.join(map(str, registry.problems))}")
        return f"version {registry.snapshot().version}"

    return Check(name="registry", look=look, is_vital=False)


def runbook_checks(ledger: Ledger, bus: Bus, runbooks: Runbooks, schedules: bool) -> list[Check]:
    """For a process that runs only runbooks: all checks are vital."""
    health = runbooks.scheduler.health if schedules else runbooks.orchestrator.health
    return [
        Check(name="ledger", look=ledger.health),
        Check(name="bus", look=bus.health),
        Check(name="scheduler" if schedules else "runbooks", look=health),
    ]
