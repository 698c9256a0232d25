"""The table `phase_approvals`: who has approved or refused an execution of a phase."""

from __future__ import annotations

from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.approvals import Decision
from lucius.runbooks.store.columns import columns_of, values_of

OF_BATCH = (
    f"SELECT {columns_of(Decision, {'phase_id': 'a.phase_execution_id'}, 'a')} FROM phase_approvals a"
    " JOIN phase_executions p ON p.id = a.phase_execution_id WHERE p.batch_id = $1 ORDER BY a.decided_at, a.actor"
)
_ADD = (
    "INSERT INTO phase_approvals (phase_execution_id, actor, decision, reason, decided_at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (phase_execution_id, actor) DO NOTHING"
)
_CHANGE = (
    "UPDATE phase_approvals SET decision = $3, reason = $4, decided_at = $5"
    " WHERE phase_execution_id = $1 AND actor = $2 AND decision <> $3"
)


def of_batch(batch_id: int) -> Script[list[Decision]]:
    return [Decision(*row) for row in (yield Fetch(OF_BATCH, [batch_id]))]


def write(decision: Decision) -> Script[None]:
    """Of a locked batch. Who had decided otherwise has changed their mind."""
    values = values_of(decision)
    yield Run(_ADD, [values])
    yield Run(_CHANGE, [values])
