"""The table of operations: path, role, request and response bodies, errors. Routes and OpenAPI are made from it."""

from __future__ import annotations

from lucius.api import admin, callbacks, commands, jobs, sightings
from lucius.api.audit import AUDIT_OPERATIONS
from lucius.api.bulk_table import BULK_OPERATIONS
from lucius.api.console_links import CONSOLE_OPERATIONS
from lucius.api.endpoint import Handler
from lucius.api.figures import FIGURE_OPERATIONS
from lucius.api.notifications import NOTIFICATION_OPERATIONS
from lucius.api.operation import BODY_ERRORS, HELD_ERRORS, JOB_LIST_ERRORS, LIMIT, LIST_ERRORS, Operation, Parameter
from lucius.api.protocol_preview import PREVIEW_OPERATIONS
from lucius.api.retention import RETENTION_OPERATIONS
from lucius.api.runbook_operations import RUNBOOK_OPERATIONS

__all__ = ["OPERATIONS", "Operation", "Parameter"]


JOB_ID = Parameter("job_id", "path", "JobId", "The job's id, from the response to the command")
OPERATION_KEY = Parameter(
    jobs.KEY_HEADER, "header", "IdempotencyKey", "An operation with the same key on the same job is applied once"
)
CURSOR = Parameter("cursor", "query", "Cursor", "The `next` of the previous page")
WAIT = Parameter("wait_seconds", "query", "WaitSeconds", "Wait up to this long for the job to end")
LIST_JOBS = (
    Parameter("tenant_id", "query", "TenantId", "Only this tenant's jobs"),
    Parameter("status", "query", "JobStatuses", "Only jobs in this state, or in one of several: `PAUSED,CANCELLING`"),
    Parameter("job_id_prefix", "query", "JobIdPrefix", "Only jobs whose ids begin with these characters"),
    Parameter("request_type", "query", "Name", "Only jobs of this request type"),
    Parameter("created_from", "query", "Moment", "Only jobs accepted at this time or later"),
    Parameter("created_to", "query", "Moment", "Only jobs accepted before this time"),
    Parameter("error_signature", "query", "Signature", "Only jobs that failed for this reason"),
    Parameter("waits_for", "query", "WaitCause", "Only open jobs that wait for this"),
    Parameter("correlation_id", "query", "Name", "Only jobs with this correlation id"),
    Parameter("idempotency_key", "query", "IdempotencyKey", "Only the job accepted under this key, of each tenant"),
    Parameter("payload", "query", "PayloadFilter", "`field=value`: only jobs with this value in a searchable field"),
    LIMIT,
    CURSOR,
)
TOKEN = Parameter(callbacks.TOKEN_HEADER, "header", "CallbackToken", "The directive's `callback_token`")

COMMAND_ERRORS = (
    *BODY_ERRORS, "TENANT_FORBIDDEN", "MODE_FORBIDDEN", "REF_FORBIDDEN", "SCHEMA_VERSION_UNSUPPORTED",
    "REQUEST_TYPE_UNKNOWN", "PAYLOAD_INVALID", "REF_INVALID", "DOC_ID_REQUIRED", "IDEMPOTENCY_KEY_REUSED",
    "TENANT_SATURATED", "MODE_SATURATED", "GLOBAL_SATURATED", "RATE_LIMITED",
)  # fmt: skip
CALLBACK_ERRORS = (*BODY_ERRORS, "UNAUTHENTICATED", "JOB_NOT_FOUND", "STEP_NOT_FOUND", "STALE_ATTEMPT", "JOB_TERMINAL")
JOB_ERRORS = ("JOB_NOT_FOUND", "ENVELOPE_INVALID")
ACT_ERRORS = (*JOB_ERRORS, *BODY_ERRORS, "JOB_TERMINAL", "CONFLICT", "IDEMPOTENCY_KEY_REUSED")


def _list_errors(parameters: tuple[Parameter, ...]) -> tuple[str, ...]:
    return ("ENVELOPE_INVALID", *JOB_LIST_ERRORS) if LIMIT in parameters else ("ENVELOPE_INVALID",)


def _act(
    name: str, handler: Handler, summary: str, errors: tuple[str, ...] = ACT_ERRORS, body: str = "Reason"
) -> Operation:
    return Operation(
        method="POST", path=f"/v1/jobs/{{job_id}}:{name}", name=f"{name}Job", handler=handler, summary=summary,
        tag="jobs", role="operate", body=body, body_required=False, status=202, answer="JobTaken", errors=errors,
        parameters=(JOB_ID, OPERATION_KEY),
    )  # fmt: skip


def _read(path: str, name: str, handler: Handler, summary: str, answer: str, *parameters: Parameter) -> Operation:
    errors = JOB_ERRORS if JOB_ID in parameters else _list_errors(parameters)
    if handler in (jobs.get_job, jobs.get_events):
        errors += HELD_ERRORS
    return Operation(
        method="GET", path=path, name=name, handler=handler, summary=summary, tag="jobs", role="read",
        answer=answer, errors=errors, parameters=parameters,
    )  # fmt: skip


def _callback(kind: str, handler: Handler, summary: str, *more_errors: str) -> Operation:
    return Operation(
        method="POST", path=f"/v1/callbacks/{kind}", name=f"{kind}Callback", handler=handler, summary=summary,
        tag="services", role=None, body=kind.capitalize(), answer="CallbackOutcome",
        errors=(*CALLBACK_ERRORS, *more_errors),
        parameters=(TOKEN,),
    )  # fmt: skip


def _admin(path: str, name: str, handler: Handler, summary: str, answer: str, *parameters: Parameter) -> Operation:
    return Operation(
        method="GET", path=f"/v1/admin/{path}", name=name, handler=handler, summary=summary, tag="operators",
        role="read", on_all_tenants=True, answer=answer, errors=_list_errors(parameters),
        parameters=parameters,
    )  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/commands", name="submitCommand", handler=commands.submit, tag="commands",
        summary="Submit a command; it becomes a job", role="submit", body="Envelope", status=202, answer="JobTaken",
        errors=COMMAND_ERRORS,
    ),
    Operation(
        method="POST", path="/v1/commands:validate", name="validateCommand", handler=commands.validate, tag="commands",
        summary="Validate a command without creating a job", role="submit", body="Envelope",
        answer="Validation", errors=(*BODY_ERRORS, "TENANT_FORBIDDEN"),
    ),
    Operation(
        method="POST", path="/v1/commands:batch", name="submitCommands", handler=commands.batch, tag="commands",
        summary="Submit up to 500 commands; each is accepted or refused on its own", role="submit", body="CommandBatch",
        answer="CommandBatchResults", errors=BODY_ERRORS,
    ),
    _read("/v1/jobs", "listJobs", jobs.list_jobs, "List jobs, newest first", "JobList", *LIST_JOBS),
    _read(
        "/v1/jobs/{job_id}", "getJob", jobs.get_job, "Get a job, its steps, and what it waits for", "Job", JOB_ID, WAIT
    ),
    _read(
        "/v1/jobs/{job_id}/steps", "getSteps", jobs.get_steps, "List the steps of a job with all attempts", "Steps",
        JOB_ID,
    ),
    Operation(
        method="GET", path="/v1/jobs/{job_id}/command", name="getCommand", handler=jobs.get_command, tag="jobs",
        summary="The command that a job was made of, without its keys: to submit one like it", role="submit",
        answer="Envelope", errors=(*JOB_ERRORS, "CONFLICT"), parameters=(JOB_ID,),
    ),
    _read(
        "/v1/jobs/{job_id}/events", "getEvents", jobs.get_events,
        "The audit trail; `Accept: text/event-stream` follows it live", "Events", JOB_ID, LIMIT,
        Parameter("cursor", "query", "EventCursor", "The `next` of the previous page"),
        Parameter("Last-Event-ID", "header", "EventCursor", "In a stream: the `id` of the last event seen"),
    ),
    _act("cancel", jobs.cancel, "Cancel a job; an attempt under way may finish, unless it is forced", body="Cancel"),
    _act("pause", jobs.pause, "Start nothing new until the job is resumed"),
    _act("resume", jobs.resume, "Resume a paused job"),
    _act(
        "redrive", jobs.redrive, "Start a failed or cancelled job again, as a new job, also with another payload",
        tuple(dict.fromkeys((*ACT_ERRORS, *(code for code in COMMAND_ERRORS if code != "RATE_LIMITED")))),
        body="Redrive",
    ),
    _callback("ack", callbacks.ack, "A service has picked up a directive"),
    _callback("result", callbacks.result, "A service has finished an attempt", "REF_FORBIDDEN", "REF_INVALID"),
    _callback("heartbeat", callbacks.heartbeat, "A service is still working"),
    Operation(
        method="POST", path="/v1/callbacks:batch", name="callbackBatch", handler=callbacks.batch, tag="services",
        summary="Send several callbacks at once, each with its own token; each is answered on its own", role=None,
        body="CallbackBatch", answer="CallbackOutcomes", errors=BODY_ERRORS,
    ),
    Operation(
        method="POST", path="/v1/directives:pull", name="pullDirectives", handler=callbacks.pull, tag="services",
        summary="Take directives over HTTP, waiting for the first", role="work", on_all_tenants=True, body="Pull",
        answer="Directives", errors=(*BODY_ERRORS, *HELD_ERRORS),
    ),
    _read("/v1/protocols", "listProtocols", admin.list_protocols, "List the protocols", "ProtocolList"),
    Operation(
        method="GET", path="/v1/protocols/{protocol_id}", name="getProtocol", handler=admin.get_protocol, tag="jobs",
        summary="Get a protocol with its schemas", role="read", answer="Protocol",
        errors=("NOT_FOUND", "ENVELOPE_INVALID"),
        parameters=(Parameter("protocol_id", "path", "Name", "Id or request type of the protocol"),),
    ),
    Operation(
        method="GET", path="/v1/protocols/{protocol_id}/figures", name="getProtocolFigures",
        handler=admin.get_protocol_figures, tag="jobs", role="read", answer="ProtocolFigures",
        summary="How many open jobs each version of a protocol has, and how long its steps took",
        errors=("NOT_FOUND", "ENVELOPE_INVALID", *LIST_ERRORS),
        parameters=(Parameter("protocol_id", "path", "Name", "Id or request type of the protocol"),),
    ),
    Operation(
        method="POST", path="/v1/admin/outbox/retry", name="retryOutbox", handler=admin.retry_outbox, tag="operators",
        summary="Make every unsent directive due now", role="operate", on_all_tenants=True, body="Empty",
        body_required=False, answer="Retried", errors=("BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"),
    ),
    _admin("outbox", "listOutbox", admin.list_outbox, "List unsent directives, oldest first", "OutboxList", LIMIT),
    _admin(
        "dead-letters", "listDeadLetters", admin.list_dead_letters,
        "List jobs that failed finally, and messages that the bus gave up on", "DeadLetters", LIMIT, CURSOR,
        Parameter("dismissed", "query", "Flag", "`true`: the jobs that were dismissed, and no messages"),
    ),
    Operation(
        method="POST", path="/v1/admin/dead-letters/{job_id}:dismiss", name="dismissDeadLetter",
        handler=admin.dismiss_dead_letter, tag="operators", summary="Take a failed job off the list of dead letters",
        role="operate", on_all_tenants=True, body="Dismiss", answer="Dismissal", parameters=(JOB_ID,),
        errors=(*JOB_ERRORS, *BODY_ERRORS, "CONFLICT"),
    ),
    _admin("lanes", "listLanes", admin.list_lanes, "List the lanes and how many messages wait on each", "LaneList"),
    Operation(
        method="GET", path="/v1/admin/tenants", name="listTenants", handler=admin.list_tenants, tag="operators",
        summary="List the tenants, their jobs in flight, and what became of their commands", role="read",
        answer="TenantList", errors=("ENVELOPE_INVALID", *LIST_ERRORS),
        parameters=(Parameter("window", "query", "Window", "Count over the last `hour`, `day` or `week`"),),
    ),
    _admin(
        "workers", "listWorkers", sightings.list_workers, "List the services and workers that have asked for work",
        "WorkerList",
    ),
    *PREVIEW_OPERATIONS,
    *AUDIT_OPERATIONS,
    *BULK_OPERATIONS,
    *CONSOLE_OPERATIONS,
    *FIGURE_OPERATIONS,
    *NOTIFICATION_OPERATIONS,
    *RETENTION_OPERATIONS,
    *RUNBOOK_OPERATIONS,
    Operation(
        method="GET", path="/healthz", name="healthz", handler=admin.healthz, tag="machines",
        summary="The process is alive", role=None, answer="Health",
    ),
    Operation(
        method="GET", path="/readyz", name="readyz", handler=admin.readyz, tag="machines",
        summary="The process is ready", role=None, answer="Health", errors=("UNAVAILABLE",),
    ),
)  # fmt: skip
