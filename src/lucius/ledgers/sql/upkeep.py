"""Drift repair and pruning."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ledgers.sql import documents, statements
from lucius.ledgers.sql.lists import ID_LEAD_MILLIS, first_id_at
from lucius.ports.audit import first_entry_id_at
from lucius.ports.ledger import JobKey, Repairs
from lucius.sql.database import Fetch, Run, Script


def repair_script(now: Instant, claim_seconds: float) -> Script[Repairs]:
    # Holding the counters keeps every turn that creates or ends a job from committing while the jobs are counted. The
    # first of them, which every such turn moves first, must be there to be held.
    yield Run(statements.MAKE_GLOBAL_SLOT)
    found = yield Fetch(statements.ALL_SLOTS)
    kept = {row[0]: row[1] for row in found}
    counted: dict[str, int] = {}
    for tenant_id, mode, jobs in (yield Fetch(statements.COUNT_BY_TENANT_AND_MODE)):
        for scope in ("global", f"mode:{mode}", f"tenant:{tenant_id}"):
            counted[scope] = counted.get(scope, 0) + jobs
    wrong = {scope: counted.get(scope, 0) for scope in kept | counted if kept.get(scope, 0) != counted.get(scope, 0)}
    if wrong:
        yield Run(statements.SET_SLOTS, sorted(wrong.items()))
    tolerated = after(now, CLOCK_TOLERANCE_SECONDS)
    woken = yield Fetch(statements.WAKE_SLEEPERS, (now, tolerated, after(tolerated, claim_seconds)))
    orphans = yield Fetch(statements.ORPHANED_OUTBOX)
    if orphans:
        yield Run(statements.CLOSE_OUTBOX, [(row[0], documents.with_closed_outbox(row[1])) for row in orphans])
    return Repairs(len(wrong), len(woken), len(orphans))


def prunable_script(
    ended_before: Instant, limit: int, tenants: Sequence[str] | None, except_tenants: Sequence[str]
) -> Script[list[JobKey]]:
    if tenants is None:
        rows = yield Fetch(statements.PRUNABLE_EXCEPT, (ended_before, limit, list(except_tenants)))
        return [JobKey(*row) for row in rows]
    found: list[JobKey] = []
    end = first_id_at(ended_before + ID_LEAD_MILLIS)
    for tenant in tenants:
        if tenant not in except_tenants and len(found) < limit:
            rows = yield Fetch(statements.PRUNABLE_OF_TENANT, (ended_before, limit - len(found), tenant, end))
            found += [JobKey(*row) for row in rows]
    return found


def prune_audit_script(before: Instant, limit: int) -> Script[None]:
    yield Run(statements.PRUNE_AUDIT, [(first_entry_id_at(before), limit)])


def prune_script(ended_before: Instant, limit: int, named: Sequence[str] | None = None) -> Script[int]:
    if named is None:
        yield from prune_audit_script(ended_before, limit)
        found = yield Fetch(statements.PRUNABLE, (ended_before, limit))
    else:
        found = yield Fetch(statements.PRUNABLE_NAMED, (ended_before, limit, list(named)))
    if not found:
        return 0
    job_ids = [row[0] for row in found]
    claims = [(row[1], row[0]) for row in found if row[1]]
    if claims:
        yield Run(statements.PRUNE_CLAIM, claims)
    yield Fetch(statements.PRUNE_DEAD_MESSAGES, [job_ids])
    for statement in statements.PRUNE:
        yield Run(statement, [(job_id,) for job_id in job_ids])
    return len(found)
