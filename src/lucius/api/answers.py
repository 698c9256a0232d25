"""Response bodies about commands, jobs, callbacks and operations. Each class is the OpenAPI component of its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta, Raw

from lucius.domain.attempt import DispatchStatus, Failure
from lucius.domain.bulk_operation import BulkAction, BulkStatus, ItemStatus
from lucius.domain.effects import Outcome
from lucius.domain.job import OUTBOX, TEMPORAL, JobStatus
from lucius.domain.json_types import Moment, Page, Share, WholeNumber, any_of, ref, stated
from lucius.domain.routing import LANE_COUNT, DecisionSource, Mode
from lucius.domain.step import StepStatus
from lucius.runbooks.engine.facts import Outcome as ResultOutcome

JobId = Annotated[str, Meta(extra_json_schema=ref("JobId"))]
ErrorCode = Annotated[str, Meta(extra_json_schema=ref("ErrorCode"))]
CALLBACK_OUTCOMES = (Outcome.APPLIED, Outcome.DUPLICATE, Outcome.LATE, Outcome.IGNORED, Outcome.RECEIVED)
LaneNumber = Annotated[int, stated(minimum=0, maximum=LANE_COUNT - 1)]


# --- Errors ----------------------------------------------------------------------------------------------------------


class FaultFound(TypedDict):
    code: ErrorCode
    pointer: Annotated[str, Meta(description="JSON pointer into the body, or `?name` of a query parameter")]
    detail: str


class Refused(TypedDict):
    """An item of a batch that was refused."""

    code: ErrorCode
    detail: str


class RefusedCommand(Refused):
    errors: list[FaultFound]


class Problem(RefusedCommand):
    type: str
    title: str
    status: int
    correlation_id: str


# --- Commands --------------------------------------------------------------------------------------------------------


class JobTaken(TypedDict):
    jobId: JobId
    status: Annotated[str, Meta(extra_json_schema=ref("JobStatus"))]
    replayed: NotRequired[Annotated[bool, Meta(description="Whether it was done before, under the same key")]]
    redrive_of: NotRequired[JobId]
    detail: NotRequired[Annotated[str, Meta(description="Of a repeated command whose job had ended: how it ended")]]
    completed_at: NotRequired[Moment]
    error: NotRequired[Failure | None]


class CommandBatchResults(TypedDict):
    results: list[Annotated[Any, any_of("JobTaken", "RefusedCommand")]]


class ValidatedStep(TypedDict):
    stepId: str
    step_type: str
    service: str


class Validation(TypedDict):
    valid: bool
    protocol_id: str | None
    steps: list[ValidatedStep]
    lane: LaneNumber | None
    mode: Mode | None
    errors: list[FaultFound]


# --- Jobs ------------------------------------------------------------------------------------------------------------


class Attempt(TypedDict):
    attempt_no: WholeNumber
    lease_id: str
    status: Annotated[str, Meta(extra_json_schema=ref("StepStatus"))]
    started_at: Moment
    sent_at: Moment | None
    acked_at: Moment | None
    acked_by: str | None
    ended_at: Moment | None
    outbox_status: DispatchStatus
    error: Failure | None
    mode: Mode
    decision_source: DecisionSource
    decision_reason: str
    lane: LaneNumber
    routing_key_used: str


class Step(TypedDict):
    stepId: str
    step_type: str
    service: str
    status: StepStatus
    attempt_no: WholeNumber
    lease_id: str | None
    lease_expires_at: Moment | None
    input_ref: Raw
    mode: Mode
    decision_source: DecisionSource
    decision_reason: str
    lane: LaneNumber
    routing_key_used: str
    workspace_ref: str | None
    progress: Share
    progress_at: Moment | None
    note: str | None
    artifacts: Raw
    output_ref: Raw
    error: Failure | None
    retry_at: Moment | None
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    attempts: NotRequired[list[Attempt]]


class Steps(TypedDict):
    steps: list[Step]


class Waiting(TypedDict):
    what: str
    since: Moment
    until: Moment | None
    sentence: str
    progress_at: Annotated[
        Moment | None, Meta(description="While a service works: when it last reported another progress or note")
    ]


class Job(TypedDict):
    jobId: JobId
    tenant_id: str
    request_type: str
    protocol_id: str
    protocol_version: WholeNumber
    engine: Annotated[str, stated(enum=[OUTBOX, TEMPORAL])]
    status: JobStatus
    current_step_id: str
    progress: Share
    waiting_on: Waiting | None
    requested_mode: Mode | None
    mode: Mode
    decision_source: DecisionSource
    decision_reason: str
    lane: LaneNumber
    routing_key_used: str
    doc_id: str | None
    input_ref: Raw
    output_ref: Raw
    idempotency_key: str | None
    idempotency_hash: str
    correlation_id: str
    traceparent: Annotated[str | None, Meta(description="Its place in a trace, as W3C Trace Context writes it")]
    attempts_total: WholeNumber
    created_at: Moment
    updated_at: Moment
    completed_at: Moment | None
    not_before: Moment | None
    deadline_at: Moment
    redrive_of: JobId | None
    dead_letter: bool
    error: Failure | None
    error_signature: Annotated[str | None, Meta(description="The same for jobs that failed for the same reason")]
    steps: list[Step]


class Unreadable(TypedDict):
    """A job whose row in the database cannot be read."""

    jobId: JobId
    tenant_id: str
    error: Failure


class JobList(Page):
    items: list[Annotated[Raw, Meta(extra_json_schema=ref("ListedJob"))]]


class Event(TypedDict):
    """Further fields depend on the type."""

    seq: WholeNumber
    at: Moment
    type: str
    stepId: str | None
    attempt_no: WholeNumber | None


class Events(TypedDict):
    events: Sequence[Event]
    next: str | None


# --- Bulk operations -------------------------------------------------------------------------------------------------


class OperationWanted(TypedDict):
    """The filter that an operation selected its jobs by."""

    status: JobStatus | None
    request_type: str | None
    created_from: Moment | None
    created_to: Moment | None
    error_signature: str | None


class OperationEvent(TypedDict):
    at: Moment
    type: str
    by: str | None
    reason: str | None


class Operation(TypedDict):
    operationId: JobId
    action: BulkAction
    status: BulkStatus
    sentence: Annotated[str, Meta(description="Where it stands, and what to do")]
    tenants: Annotated[list[str] | None, Meta(description="The tenants whose jobs it may touch; null: all")]
    filter: OperationWanted
    by: str
    reason: str
    rate_per_second: float
    canary: WholeNumber
    canary_max_failures: WholeNumber
    max_failures: WholeNumber | None
    jobs: Annotated[int, Meta(description="Jobs that were selected; the five counts after it add up to it")]
    pending: WholeNumber
    started: WholeNumber
    succeeded: WholeNumber
    failed: WholeNumber
    skipped: WholeNumber
    created_at: Moment
    updated_at: Moment
    ended_at: Moment | None
    events: list[OperationEvent]


class OperationList(Page):
    items: list[Operation]


class OperationPreviewed(TypedDict):
    action: BulkAction
    count: Annotated[int, Meta(description="Exactly how many jobs it would act on now")]
    sample: list[Annotated[Raw, Meta(extra_json_schema=ref("ListedJob"))]]


class OperationOutcome(TypedDict):
    jobId: JobId
    tenant_id: str
    status: ItemStatus
    new_jobId: JobId | None
    code: str | None
    detail: str | None
    acted_at: Moment | None
    ended_at: Moment | None


class OutcomeList(Page):
    items: list[OperationOutcome]


# --- Services --------------------------------------------------------------------------------------------------------


class CallbackOutcome(TypedDict):
    outcome: Annotated[str, stated(enum=[outcome.value for outcome in CALLBACK_OUTCOMES])]
    cancel_requested: bool


class CallbackOutcomes(TypedDict):
    outcomes: list[Annotated[Any, any_of("CallbackOutcome", "Refused")]]


class WorkerRenewed(TypedDict):
    renewed: Annotated[list[bool], Meta(description="For each of `jobIds`, whether its lock was extended")]


class WorkerResultTaken(TypedDict):
    jobId: str
    outcome: Annotated[str, stated(enum=[outcome.value for outcome in ResultOutcome if outcome.name != "FORGED"])]


class WorkerResultRefused(Refused):
    jobId: str | None


class WorkerOutcomes(TypedDict):
    outcomes: list[Annotated[Any, any_of("WorkerResultTaken", "WorkerResultRefused")]]
