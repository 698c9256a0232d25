"""Figures for people: counts by minute, open jobs by what they wait for, failures by reason.

They read counters, or jobs through an index: open jobs are few, and of the failed ones only the newest are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucius.domain.time import Instant
from lucius.ledgers.sql import rows, statements
from lucius.ledgers.sql.lists import first_id_at
from lucius.ports.ledger import REFUSED, FailureGroup, FailureGroups, JobFilter, OpenGroup, OpenGroups
from lucius.sql.database import Fetch, Run, Script

MINUTES_OF_HOUR = 60


def counts_script(since: int, tenants: Sequence[str] | None) -> Script[dict[str, int]]:
    sql = statements.COUNTS if tenants is None else statements.COUNTS_OF_TENANTS
    found = yield Fetch(sql, _window(since, tenants))
    counted = zip(statements.COUNTED, found[0], strict=True)
    return {outcome: int(jobs) for outcome, jobs in counted if jobs is not None}


def counts_by_tenant_script(since: int, tenants: Sequence[str] | None) -> Script[dict[str, dict[str, int]]]:
    sql = statements.COUNTS_BY_TENANT if tenants is None else statements.COUNTS_BY_TENANT_OF_TENANTS
    counted: dict[str, dict[str, int]] = {}
    for tenant_id, outcome, jobs in (yield Fetch(sql, _window(since, tenants))):
        counted.setdefault(tenant_id, {})[outcome] = int(jobs)
    return counted


def count_refused_script(at: int, refused: Mapping[str, int]) -> Script[None]:
    counts = {(rows.minute_of(at), tenant_id, REFUSED): count for tenant_id, count in refused.items()}
    yield Run(statements.COUNT_JOBS, rows.with_hours(counts))


def _window(since: Instant, tenants: Sequence[str] | None) -> list[Any]:
    """Of what is counted from the minute of this time on: its first minute, the first minute of the first whole hour,
    and the key of that hour."""
    first = rows.minute_of(since)
    whole = -(-first // MINUTES_OF_HOUR) * MINUTES_OF_HOUR
    return [first, whole, rows.hour_key(whole), *([] if tenants is None else [list(tenants)])]


def open_groups_script(scanned_max: int, tenants: Sequence[str] | None) -> Script[OpenGroups]:
    """One more than `scanned_max` is looked at, to know whether there are more; it is counted in its group."""
    args: list[Any] = [scanned_max + 1, *([] if tenants is None else [list(tenants)])]
    found = yield Fetch(statements.open_groups(of_tenants=tenants is not None), args)
    groups = [
        OpenGroup(
            protocol_id=row[0], protocol_version=int(row[1]), lane=int(row[2]), tenant_id=row[3], jobs=int(row[4])
        )
        for row in found
    ]
    return OpenGroups(groups, sum(group.jobs for group in groups) > scanned_max)


def oldest_waiting_script(tenants: Sequence[str] | None) -> Script[dict[str, str]]:
    if tenants is None:
        found = yield Fetch(statements.OLDEST_WAITING)
    else:
        found = yield Fetch(statements.OLDEST_WAITING_OF_TENANTS, [list(tenants)])
    return {row[0]: row[1] for row in found}


def wait_causes_script(tenants: Sequence[str] | None) -> Script[dict[str, int]]:
    if tenants is None:
        found = yield Fetch(statements.COUNT_WAIT_CAUSES)
    else:
        found = yield Fetch(statements.COUNT_WAIT_CAUSES_OF_TENANTS, [list(tenants)])
    return {row[0]: int(row[1]) for row in found if row[0] is not None}


def failures_script(filter_: JobFilter, scanned_max: int, limit: int) -> Script[FailureGroups]:
    """One more than `scanned_max` is looked at, to know whether there are more; it is counted in its group."""
    args: list[Any] = [scanned_max + 1, first_id_at(filter_.created_from or 0)]
    if filter_.tenants is not None:
        args.append(list(filter_.tenants))
    sql = statements.failures(of_tenants=filter_.tenants is not None, are_open=filter_.dead_letter)
    groups: list[FailureGroup] = []
    scanned = 0
    for signature, jobs, tenants, first_at, last_at, newest_id in (yield Fetch(sql, args)):
        scanned += int(jobs)
        groups.append(
            FailureGroup(
                error_signature=signature,
                jobs=int(jobs),
                tenants=int(tenants),
                first_at=first_at,
                last_at=last_at,
                newest_id=newest_id,
            )
        )
    return FailureGroups(groups[:limit], min(scanned, scanned_max), scanned > scanned_max)
