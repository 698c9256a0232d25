"""The command of a job, as it could be sent again."""

from __future__ import annotations

from typing import Any

from lucius.domain.job import Job
from lucius.domain.protocol import Protocol
from lucius.usecases.command_of_job import command_of


def envelope_of(job: Job, protocol: Protocol | None) -> dict[str, Any]:
    """With a key of its own: sent again, it is another command."""
    return {**command_of(job, protocol), "idempotency_key": f"like-{job.job_id}"}
