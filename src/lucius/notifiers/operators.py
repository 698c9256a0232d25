"""What operators do with notifications: list them, and send a test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import merge
from itertools import islice

from lucius.domain.errors import CallerError
from lucius.domain.notifications import Cause, Facts, Notice, Recipient
from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.notifications import recording, store
from lucius.notifications.store import Notification, NotificationFilter
from lucius.ports.audit import new_entry_id
from lucius.ports.clock import Clock
from lucius.ports.database import Database
from lucius.ports.registry import Registry
from lucius.runbooks.opening import Runbooks, RunbooksOff

NO_JOBS = (
    "recipients in tenants' files are told nothing: the ledger {} keeps no notifications. They need a ledger in SQLite"
    " or PostgreSQL; runbooks that have a database are not affected"
)


class Notifications:
    def __init__(
        self,
        registry: Registry,
        runbooks: Runbooks | RunbooksOff,
        of_jobs: Database | None,
        clock: Clock,
        ledger: str,
    ) -> None:
        """`of_jobs`: where the ledger records notifications; None if it records none."""
        self._registry = registry
        self._of_jobs = of_jobs
        self._runbooks = runbooks
        self._clock = clock
        self._ledger = ledger
        of_runbooks = runbooks.turns.database if isinstance(runbooks, Runbooks) else None
        self._of_runbooks = of_runbooks
        self.databases: Sequence[Database] = [one for one in dict.fromkeys((of_jobs, of_runbooks)) if one is not None]

    @property
    def problem(self) -> str | None:
        """Why somebody who is to be told is not."""
        tenants = self._registry.snapshot().tenants.values()
        if self._of_jobs is None and any(one.notifications.recipients for one in tenants):
            return NO_JOBS.format(self._ledger)
        return None

    async def newest(self, filter_: NotificationFilter, limit: int, before_id: str | None) -> list[Notification]:
        lists = [await one.scan(partial(store.listed, filter_, limit, before_id)) for one in self.databases]
        return list(islice(merge(*lists, key=lambda one: one.notification_id, reverse=True), limit))

    async def get(self, notification_id: str) -> Notification | None:
        for database in self.databases:
            found = await database.read(partial(store.get, notification_id))
            if found is not None:
                return found
        return None

    async def test_tenant(self, tenant_id: str, recipient: str, by: str) -> Notification:
        """Send a test to a recipient in a tenant's file. Raises `CallerError`."""
        tenant = self._registry.snapshot().tenants.get(tenant_id)
        if tenant is None:
            raise CallerError.of("NOT_FOUND", f"the registry has no tenant {tenant_id[:128]}")
        if self._of_jobs is None:
            raise CallerError.of("CONFLICT", NO_JOBS.format(self._ledger))
        one = _named(tenant.notifications.recipients, recipient, f"tenant {tenant.id}")
        return await self._test(self._of_jobs, one, by, tenant_id=tenant.id)

    async def test_runbook(self, runbooks: Runbooks, name: str, recipient: str, by: str) -> Notification:
        """Send a test to a recipient of the active version of a runbook. Raises `CallerError`."""
        runbook = await runbooks.queries.active_definition(name)
        one = _named(runbook.notifications.recipients, recipient, f"runbook {runbook.name}")
        for variable in one.variables.values():
            refusal = runbooks.turns.grants.connection_refusal(name, variable)
            if refusal is not None:
                raise CallerError.of("CONFLICT", refusal, "/recipient")
        return await self._test(
            runbooks.turns.database, one, by, tenant_id=tenant_of_runbook(name), runbook=runbook.name
        )

    async def _test(
        self, database: Database, one: Recipient, by: str, tenant_id: str | None = None, runbook: str | None = None
    ) -> Notification:
        now = self._clock.now()
        # Its own cause each time, so that no interval holds it back.
        facts = Facts(
            cause=Cause.TEST, at=now, about=new_entry_id(now), tenant_id=tenant_id, runbook=runbook,
            reason=f"{by} asked for a test. If you can read this, notifications reach you.",
        )  # fmt: skip
        recorded = await database.write(partial(recording.record, [Notice(facts, one)], now))
        found = await self.get(recorded[0].notification_id)
        assert found is not None
        return found


def _named(recipients: Sequence[Recipient], name: str, whose: str) -> Recipient:
    for one in recipients:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in recipients)
    detail = f"its recipients are {known}" if known else "it has no recipients"
    raise CallerError.of("NOT_FOUND", f"{whose} has no recipient {name[:100]!r}: {detail}", "/recipient")
