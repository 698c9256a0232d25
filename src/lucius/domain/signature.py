"""Failure signatures: jobs that failed for the same reason share one, whatever their ids and numbers."""

from __future__ import annotations

import re

from lucius.domain.job import Job, JobStatus

MESSAGE_CHARACTERS_MAX = 120
READ_CHARACTERS_MAX = 1_000
"""Of a message; what follows does not tell one reason from another."""

_VARIABLE = re.compile(
    r"[a-z][a-z0-9+.-]*://\S+"  # addresses
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"  # ids
    r"|\b(?=[a-f]*\d)[0-9a-f]{8,}\b"  # hashes
    r"|'[^']*'|\"[^\"]*\"|`[^`]*`"  # what is quoted
    r"|\d+(?:[.,:]\d+)*",  # numbers and times
    re.IGNORECASE,
)


def error_signature(job: Job) -> str | None:
    """Protocol and its version, step, error code, and the message without what differs from job to job; None unless the
    job has failed."""
    if job.status is not JobStatus.FAILED_FINAL or job.error is None:
        return None
    spec, error = job.spec, job.error
    message = normal_message(error.message)
    return f"{spec.protocol_id}/{spec.protocol_version}/{job.current_step.spec.step_id}/{error.code}: {message}"


def protocol_and_step(signature: str | None) -> tuple[str, str]:
    """What a signature begins with; empty if there is none."""
    parts = (signature or "").split("/", 3)
    return (parts[0], parts[2]) if len(parts) == 4 else ("", "")


def normal_message(message: str) -> str:
    text = _VARIABLE.sub("*", message[:READ_CHARACTERS_MAX])
    return " ".join(text.split())[:MESSAGE_CHARACTERS_MAX]
