"""Warns tenants' recipients before jobs miss their deadlines."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from lucius.domain.notifications import Cause, Facts
from lucius.domain.time import Instant, after
from lucius.ledgers.sql.statements import IS_OPEN
from lucius.notifications.recording import first_time, record
from lucius.ports.clock import Clock
from lucius.sql.database import Database, Fetch, Script
from lucius.usecases.job_notices import JobNotices

LOOK_SECONDS = 15.0
JOBS_MAX = 500
"""Of one tenant in one round; the next round finds the rest."""
IDS_SHOWN_MAX = 10
MARK_SECONDS = 86_400.0
"""How long after its deadline it is remembered that somebody was warned of a job."""

_DEADLINE = "((SELECT p.document FROM job_specs p WHERE p.job_id = job_states.job_id)::json ->> 1)::bigint"
NEAR = (
    f"SELECT job_id, request_type, {_DEADLINE} FROM job_states WHERE {IS_OPEN} AND tenant_id = $1"
    f" AND {_DEADLINE} <= $2 AND NOT EXISTS (SELECT 1 FROM notification_causes c"
    " WHERE c.cause_key = 'deadline:job:' || job_states.job_id) ORDER BY job_id LIMIT $3"
)


class _Near(NamedTuple):
    job_id: str
    request_type: str
    deadline_at: Instant


class JobDeadlines:
    def __init__(self, database: Database, clock: Clock, notices: JobNotices) -> None:
        self._database = database
        self._clock = clock
        self._notices = notices

    async def look(self) -> None:
        """Record one notice for all jobs of a tenant and request type that are near; each job counts once."""
        now = self._clock.now()
        for tenant_id, seconds in self._notices.warned_of_deadlines().items():
            # On the readers of lists: many open jobs take a while, and engines must not wait.
            near = await self._database.scan(partial(_near, tenant_id, after(now, seconds)))
            if near:
                await self._database.write(partial(self._warn, tenant_id, near, now))

    def _warn(self, tenant_id: str, near: list[_Near], now: Instant) -> Script[None]:
        marks = [(_mark(one), after(one.deadline_at, MARK_SECONDS)) for one in near]
        new = yield from first_time(marks)
        by_type: dict[str, list[_Near]] = {}
        for one in near:
            if _mark(one) in new:
                by_type.setdefault(one.request_type, []).append(one)
        notices = [
            notice
            for request_type, jobs in sorted(by_type.items())
            for notice in self._notices.of_deadlines(_facts(tenant_id, request_type, jobs, now))
        ]
        yield from record(notices, now)


def _mark(one: _Near) -> str:
    return f"deadline:job:{one.job_id}"


def _near(tenant_id: str, until: Instant) -> Script[list[_Near]]:
    return [_Near(*row) for row in (yield Fetch(NEAR, (tenant_id, until, JOBS_MAX)))]


def _facts(tenant_id: str, request_type: str, jobs: list[_Near], now: Instant) -> Facts:
    first = min(jobs, key=lambda one: one.deadline_at)
    named = ", ".join(one.job_id for one in jobs[:IDS_SHOWN_MAX]) + (" …" if len(jobs) > IDS_SHOWN_MAX else "")
    return Facts(
        cause=Cause.DEADLINE_NEAR, at=now, about=request_type, tenant_id=tenant_id, job_id=first.job_id,
        request_type=request_type, due_at=first.deadline_at, count=len(jobs), reason=f"not ended yet: {named}",
    )  # fmt: skip
