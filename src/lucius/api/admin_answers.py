"""Response bodies for operators, the console and machines. Each class is the OpenAPI component of its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from lucius.api.answers import Attempt, JobId, JobList, LaneNumber
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


class Protocol(TypedDict):
    id: str
    version: WholeNumber
    description: str
    request_types: Sequence[str]
    steps: list[ProtocolStep]


class ProtocolList(Page):
    items: list[Protocol]


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
        Meta(description="For the last `hour`, `day` and `week`: jobs `ACCEPTED`, and jobs that ended, by state"),
    ]
    waiting: Annotated[dict[str, int], Meta(description="Open jobs by what they wait for")]
    inflight: list[InFlight]


class FailureGroup(TypedDict):
    error_signature: str | None
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


class Lane(TypedDict):
    lane: LaneNumber
    topic: str
    subscriptions: list[LaneSubscription]


class LaneList(Page):
    items: list[Lane]


class Tenant(TypedDict):
    tenant_id: str
    registered: bool
    mode: Mode | None
    burst_allowed: bool
    inflight: WholeNumber
    max_inflight: WholeNumber


class TenantList(Page):
    items: list[Tenant]
    inflight: WholeNumber
    max_inflight: WholeNumber


class WorkerSeen(TypedDict):
    """An instance of a platform service or function worker that has asked for work."""

    kind: WorkerKind
    name: Annotated[str, Meta(description="The service, or the worker id")]
    instance: str
    version: str | None
    in_work: WholeNumber | None
    present: Annotated[bool, Meta(description="Whether it has asked for work in the last 30 seconds")]
    first_seen_at: Moment
    last_seen_at: Moment


class WorkerList(Page):
    items: list[WorkerSeen]


class Health(TypedDict):
    status: str
