"""Jobs as the API shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lucius.client.errors import Fault, read_faults
from lucius.client.models.decoding import Model, named
from lucius.client.statuses import JOB_TERMINAL


@dataclass(frozen=True, kw_only=True)
class Frame(Model):
    """Where an exception passed through."""

    file: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True, kw_only=True)
class Failure(Model):
    code: str
    message: str = ""
    frames: list[Frame] = field(default_factory=list)
    """Where the service raised it, the innermost last; empty if it does not say."""
    instance: str | None = None
    """The service instance that ran the attempt."""


@dataclass(frozen=True, kw_only=True)
class Accepted(Model):
    """A job as returned by a submission or operation."""

    job_id: str = named("jobId")
    status: str = ""
    replayed: bool = False
    """The same command was submitted before: this is its job."""
    redrive_of: str | None = None
    detail: str | None = None
    """If the same command was submitted before and its job had ended: how it ended."""
    completed_at: datetime | None = None
    error: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Waiting(Model):
    """What a job waits for: `START`, `TENANT_CAP`, `BUS`, `ACK`, `RESULT`, `RETRY` or `RESUME`."""

    what: str
    since: datetime | None = None
    until: datetime | None = None
    sentence: str = ""
    progress_at: datetime | None = None
    """While a service works: when it last reported another progress or note."""


@dataclass(frozen=True, kw_only=True)
class Attempt(Model):
    attempt_no: int
    status: str
    lease_id: str | None = None
    started_at: datetime | None = None
    sent_at: datetime | None = None
    acked_at: datetime | None = None
    ended_at: datetime | None = None
    error: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Step(Model):
    step_id: str = named("stepId")
    step_type: str = ""
    service: str = ""
    status: str = ""
    attempt_no: int = 0
    progress: float | None = None
    progress_at: datetime | None = None
    note: str | None = None
    artifacts: dict[str, Any] | None = None
    output_ref: Any = None
    error: Failure | None = None
    retry_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    attempts: list[Attempt] = field(default_factory=list)
    """Filled only by `steps`."""


@dataclass(frozen=True, kw_only=True)
class Job(Model):
    job_id: str = named("jobId")
    tenant_id: str = ""
    status: str = ""
    """Empty for a job in a list whose rows the server cannot read: `error` then has the code `ROW_UNREADABLE`."""
    request_type: str = ""
    protocol_id: str = ""
    protocol_version: int = 0
    engine: str = ""
    progress: float = 0.0
    current_step_id: str | None = None
    waiting_on: Waiting | None = None
    mode: str = ""
    lane: int | None = None
    doc_id: str | None = None
    input_ref: Any = None
    output_ref: Any = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    attempts_total: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    completed_at: datetime | None = None
    not_before: datetime | None = None
    deadline_at: datetime | None = None
    redrive_of: str | None = None
    dead_letter: bool = False
    error: Failure | None = None
    error_signature: str | None = None
    """The same for jobs that failed for the same reason."""
    steps: list[Step] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.status in JOB_TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCEEDED"


@dataclass(frozen=True, kw_only=True)
class Event(Model):
    """One event of a job's audit trail. Its other fields are in `raw`, by type: docs/reference/events.md."""

    seq: int
    at: datetime
    type: str
    step_id: str | None = field(default=None, metadata={"name": "stepId"})
    attempt_no: int | None = None


@dataclass(frozen=True, kw_only=True)
class SubmittedItem(Model):
    """One answer of `submit_many`: a job, or the reason why there is none."""

    job_id: str | None = field(default=None, metadata={"name": "jobId"})
    status: str | None = None
    replayed: bool = False
    code: str | None = None
    message: str | None = field(default=None, metadata={"name": "detail"})


@dataclass(frozen=True, kw_only=True)
class Validation(Model):
    valid: bool
    protocol_id: str | None = None
    mode: str | None = None
    lane: int | None = None

    @property
    def faults(self) -> list[Fault]:
        """Why the command would be rejected."""
        return read_faults(self.raw.get("errors"))


@dataclass(frozen=True, kw_only=True)
class Protocol(Model):
    id: str
    version: int
    description: str | None = None
    request_types: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
