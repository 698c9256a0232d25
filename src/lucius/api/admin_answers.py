"""Response bodies for operators, the console and machines. Each class is the OpenAPI component of its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from lucius.api.answers import Attempt, FaultFound, JobId, JobList, LaneNumber
from lucius.domain.json_types import JsonObject, Moment, Page, WholeNumber, ref
from lucius.domain.routing import Mode
from lucius.ports.workers import WorkerKind
from lucius.runbooks.core.answers import RunbookDeadMessage


class ProtocolStep(TypedDict):
    stepId: str
    step_type: str
    service: str
    payload_pointer: str
    payload_schema: JsonObject
    searchable: Annotated[Sequence[str], Meta(description="Fields by whose values jobs can be found")]
    policy: Annotated[
        JsonObject, Meta(description="Timeouts, attempts and backoffs, unless the job's tenant has its own")
    ]


class Protocol(TypedDict):
    id: str
    version: WholeNumber
    description: str
    request_types: Sequence[str]
    job_deadline_seconds: Annotated[float, Meta(description="Unless the job's tenant has its own")]
    steps: list[ProtocolStep]


class ProtocolList(Page):
    items: list[Protocol]


class VersionInFlight(TypedDict):
    version: WholeNumber
    jobs: WholeNumber


class PayloadRefusal(TypedDict):
    """A job whose payload a protocol would refuse. No value of the payload is in it."""

    jobId: JobId
    tenant_id: str
    request_type: str
    protocol_version: Annotated[WholeNumber, Meta(description="Under which the job was accepted")]
    created_at: Moment
    faults: list[FaultFound]
    fault_count: Annotated[WholeNumber, Meta(description="Of all faults; the first five are listed")]


class ProtocolPreview(TypedDict):
    """What a protocol would change."""

    id: str
    version: WholeNumber
    current_version: Annotated[WholeNumber | None, Meta(description="In force; null if there is none")]
    problems: Annotated[list[str], Meta(description="Why it would not take effect")]
    diff: Annotated[list[str], Meta(description="From the version in force: lines of a unified diff")]
    in_flight: list[VersionInFlight]
    in_flight_cut_off: Annotated[bool, Meta(description="There are more: only the newest 1,000 were counted")]
    payloads: Annotated[WholeNumber, Meta(description="How many of the newest were tried")]
    refused: Annotated[WholeNumber, Meta(description="How many of them it would refuse")]
    refusals: Annotated[list[PayloadRefusal], Meta(description="The newest of those, 100 at most")]
    dropped_request_types: list[str]
    dropped_services: list[str]


class ProtocolVersion(TypedDict):
    version: WholeNumber
    is_current: bool
    open_jobs: WholeNumber


class StepDurations(TypedDict):
    stepId: str
    jobs: Annotated[WholeNumber, Meta(description="Jobs that were measured: the newest that succeeded")]
    median_seconds: float
    p95_seconds: float


class ProtocolFigures(TypedDict):
    id: str
    versions: Annotated[list[ProtocolVersion], Meta(description="The current one, and those that open jobs have")]
    cut_off: Annotated[bool, Meta(description="Whether there are more open jobs than were looked at")]
    steps: list[StepDurations]


class Retried(TypedDict):
    retried: Annotated[int, Meta(description="Directives that are being published now")]
    waiting: Annotated[int, Meta(description="Directives that could not be made due")]
    detail: Annotated[str | None, Meta(description="Why not")]


class InFlight(TypedDict):
    scope: Annotated[str, Meta(description="`global`, or a tenant")]
    inflight: WholeNumber
    max_inflight: WholeNumber


class Overview(TypedDict):
    windows: Annotated[
        dict[str, dict[str, int]],
        Meta(
            description="In the last `hour`, `day`, `week`: jobs `ACCEPTED`, commands `REFUSED`, jobs ended, by state"
        ),
    ]
    waiting: Annotated[dict[str, int], Meta(description="Open jobs by what they wait for")]
    inflight: list[InFlight]


class FailureGroup(TypedDict):
    error_signature: str | None
    service: Annotated[
        str | None,
        Meta(description="The service of its step, as the newest version of its protocol has it; null without one"),
    ]
    jobs: WholeNumber
    tenants: Annotated[int, Meta(description="How many tenants they are of")]
    first_at: Moment
    last_at: Moment
    newest_jobId: JobId


class FailureList(Page):
    items: list[FailureGroup]
    scanned: Annotated[int, Meta(description="Failed jobs that were looked at, the newest")]
    cut_off: Annotated[bool, Meta(description="Whether there are more failed jobs, older than those")]


class LaneSample(TypedDict):
    at: Moment
    oldest_seconds: Annotated[list[float], Meta(description="By lane: the age of the oldest message that waits, or 0")]


class LaneHistory(Page):
    items: list[LaneSample]


class ConsoleLink(TypedDict):
    url: Annotated[str, Meta(description="Opens the console; good for one use")]
    expires_at: Moment


class OutboxRow(Attempt):
    jobId: JobId
    stepId: str
    tenant_id: str
    topic: str
    partition: LaneNumber
    claimed_until: Moment


class OutboxList(Page):
    items: list[Annotated[Any, Meta(extra_json_schema=ref("ListedOutboxRow"))]]


class DeadMessage(TypedDict):
    messageId: str
    topic: str
    subscription: str
    delivery_count: WholeNumber
    reason: str
    dead_at: Moment
    runbook: Annotated[RunbookDeadMessage | None, Meta(description="Null unless it is about a batch of a runbook")]


class Dismissal(TypedDict):
    jobId: JobId
    dismissed_at: Moment
    dismissed_by: str | None
    reason: str | None


class DeadLetters(JobList):
    messages: list[DeadMessage]
    dismissals: Annotated[list[Dismissal], Meta(description="Of the jobs listed, with `dismissed=true`")]


class LaneSubscription(TypedDict):
    service: str
    ready: WholeNumber
    locked: WholeNumber
    dead: WholeNumber
    redelivered: Annotated[WholeNumber, Meta(description="Of those ready or locked, delivered more than once")]
    oldest_at: Moment | None
    unsent: Annotated[WholeNumber, Meta(description="Attempts that are not on the bus yet")]
    held: Annotated[WholeNumber, Meta(description="Of those unsent, waiting for their tenant's cap")]
    oldest_unsent_at: Moment | None
    consumers: Annotated[WholeNumber, Meta(description="Instances of the service that ask for work")]
    last_asked_at: Annotated[Moment | None, Meta(description="When the service last asked for work")]
    note: Annotated[str | None, Meta(description="A sentence, if directives wait and nobody asks for them")]


class LaneTenant(TypedDict):
    tenant_id: str
    open_jobs: WholeNumber


class Lane(TypedDict):
    lane: LaneNumber
    topic: str
    subscriptions: list[LaneSubscription]
    tenant_count: Annotated[WholeNumber, Meta(description="Tenants with open jobs that share the lane")]
    tenants: Annotated[list[LaneTenant], Meta(description="Ten of them, those with the most open jobs")]


class LaneList(Page):
    items: list[Lane]


class Tenant(TypedDict):
    tenant_id: str
    registered: bool
    mode: Mode | None
    burst_allowed: bool
    inflight: WholeNumber
    max_inflight: WholeNumber
    accepted: Annotated[WholeNumber, Meta(description="Jobs accepted in the window")]
    refused: Annotated[WholeNumber, Meta(description="Commands refused in the window because a limit was reached")]
    ended: Annotated[WholeNumber, Meta(description="Jobs that ended in the window")]
    failed: Annotated[WholeNumber, Meta(description="Of those, failed for good")]
    oldest_waiting_jobId: Annotated[JobId | None, Meta(description="The oldest job that no service is working on")]
    oldest_waiting_at: Moment | None


class TenantList(Page):
    items: list[Tenant]
    inflight: Annotated[WholeNumber | None, Meta(description="In all; null for a caller limited to tenants")]
    max_inflight: WholeNumber | None


class WorkerSeen(TypedDict):
    """An instance of a platform service or function worker that has asked for work."""

    kind: WorkerKind
    name: Annotated[str, Meta(description="The service, or the worker id")]
    instance: str
    version: str | None
    in_work: WholeNumber | None
    present: Annotated[bool, Meta(description="Whether it has asked for work in the last 30 seconds")]
    failed_last_hour: Annotated[WholeNumber, Meta(description="Attempts and jobs of its that failed")]
    first_seen_at: Moment
    last_seen_at: Moment


class WorkerList(Page):
    items: list[WorkerSeen]


class Health(TypedDict):
    status: str


class AuditEntry(TypedDict):
    id: str
    at: Moment
    by: Annotated[str, Meta(description="Who did it: `key:` and the name of an API key, or `jwt:` and a subject")]
    action: str
    kind: Annotated[str, Meta(extra_json_schema=ref("AuditKind"))]
    target: Annotated[str, Meta(description="Id of the job or operation, name of the runbook, number of the batch")]
    tenant_id: Annotated[str | None, Meta(description="null: it is not about one tenant")]
    reason: str | None
    detail: JsonObject


class AuditList(Page):
    items: list[AuditEntry]


class Notification(TypedDict):
    """Something that a recipient of a runbook or of a tenant is told."""

    id: str
    cause: str
    recipient: str
    kind: Annotated[str, Meta(description="`webhook`, `json` or `email`")]
    status: Annotated[str, Meta(extra_json_schema=ref("NotificationStatus"))]
    title: str
    text: str
    runbook: str | None
    batch_id: int | None
    tenant_id: str | None
    jobId: str | None
    count: Annotated[WholeNumber, Meta(description="How often it happened since the previous message for this cause")]
    created_at: Moment
    due_at: Annotated[Moment, Meta(description="Later than `created_at` if the recipient's interval held it back")]
    next_try_at: Moment | None
    ended_at: Moment | None
    attempts: WholeNumber
    last_error: Annotated[str | None, Meta(description="Why the last try failed")]


class NotificationList(Page):
    items: list[Notification]


class Pruned(TypedDict):
    jobs: WholeNumber
    archived: WholeNumber
    operations: WholeNumber
    more: Annotated[bool, Meta(description="Whether there is more to prune: call again")]


class ArchivedJob(TypedDict):
    """A job as it was when it left the ledger."""

    format: int
    jobId: str
    tenant_id: str
    archived_at: Moment
    job: JsonObject
    attempts: JsonObject
    events: list[JsonObject]
    closing: JsonObject | None
