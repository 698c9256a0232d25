"""What keeps the figures of the console cheap, however many jobs and tenants there are (decision 0059)."""

from __future__ import annotations

FAILED_BY_REASON = """CREATE INDEX states_failed ON job_states (job_id, error_signature, tenant_id, completed_at)
    WHERE status = 'FAILED_FINAL'"""
"""Has all that failures are grouped by: the newest ten thousand are read without their rows."""
COUNTS_OF_PAST_HOURS = """INSERT INTO job_counts (minute, tenant_id, outcome, jobs)
    SELECT -(minute / 60), tenant_id, outcome, SUM(jobs) FROM job_counts WHERE minute > 0
    GROUP BY minute / 60, tenant_id, outcome"""
"""A row of `job_counts` with a negative `minute` counts an hour. It is in the same table because one statement then
writes both, in the transaction of the turn."""

FIGURES = (FAILED_BY_REASON, COUNTS_OF_PAST_HOURS)
SIGNATURES_WITH_TENANTS = (
    "DROP INDEX states_by_signature",
    """CREATE INDEX states_by_signature ON job_states (error_signature, job_id, tenant_id)
        WHERE error_signature IS NOT NULL""",
)
"""So that a tenant's jobs that failed for one reason are counted without their rows, whoever else failed for it."""
