"""Drift repair and pruning."""

from __future__ import annotations

from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ledgers.sql import documents, statements
from lucius.ports.audit import first_entry_id_at
from lucius.ports.ledger import Repairs
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


def prune_script(ended_before: Instant, limit: int) -> Script[int]:
    yield Run(statements.PRUNE_AUDIT, [(first_entry_id_at(ended_before), limit)])
    found = yield Fetch(statements.PRUNABLE, (ended_before, limit))
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
