"""The table `phase_approvals`: who has approved or refused an execution of a phase."""

from __future__ import annotations

from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.approvals import Decision
from lucius.runbooks.store.columns import columns_of

OF_BATCH = (
    f"SELECT {columns_of(Decision, {'phase_id': 'a.phase_execution_id'}, 'a')} FROM phase_approvals a"
    " JOIN phase_executions p ON p.id = a.phase_execution_id WHERE p.batch_id = $1 ORDER BY a.decided_at, a.actor"
)
_WRITE = (
    "INSERT INTO phase_approvals (phase_execution_id, actor, decision, reason, decided_at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (phase_execution_id, actor) DO UPDATE SET decision = $3, reason = $4, decided_at = $5"
)


def of_batch(batch_id: int) -> Script[list[Decision]]:
    return [Decision(*row) for row in (yield Fetch(OF_BATCH, [batch_id]))]


def write(decision: Decision) -> Script[None]:
    """Of a locked batch. Who had decided otherwise has changed their mind."""
    one = decision
    yield Run(_WRITE, [(one.phase_id, one.actor, one.decision, one.reason, one.decided_at)])
