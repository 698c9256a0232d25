"""Operations on runbooks, their batches and their workers."""

from __future__ import annotations

from lucius.api import batches, runbooks, worker_jobs
from lucius.api.endpoint import Handler
from lucius.api.operation import BODY_ERRORS, HELD_ERRORS, LIMIT, LIST_ERRORS, Operation, Parameter

NAME = Parameter("name", "path", "RunbookName", "The runbook's name")
BATCH_ID = Parameter("batch_id", "path", "BatchId", "The batch's id, from the response that created it")
PHASE = Parameter("phase", "path", "Name", "The phase's name")
CURSOR = Parameter("cursor", "query", "IdCursor", "The `next` of the previous page")
VERSION = Parameter("version", "query", "RunbookVersion", "This version instead of the newest")
FROM = Parameter("from", "query", "RunbookVersion", "The version to compare")
TO = Parameter("to", "query", "RunbookVersion", "The version to compare it with")
LIST_BATCHES = (
    Parameter("runbook", "query", "Name", "Only batches of this runbook"),
    Parameter("status", "query", "BatchStatus", "Only batches in this state"),
    LIMIT,
    CURSOR,
)
LIST_MEMBERS = (
    BATCH_ID,
    Parameter("status", "query", "MemberFilter", "Only these members; `active` includes those that have failed"),
    Parameter("key", "query", "Name", "Only the member with this key, with its complete results"),
    LIMIT,
    CURSOR,
)

FOUND_ERRORS = ("NOT_FOUND", "ENVELOPE_INVALID")
ACT_ERRORS = ("NOT_FOUND", *BODY_ERRORS, "CONFLICT")


def _read(path: str, name: str, handler: Handler, summary: str, answer: str, *parameters: Parameter) -> Operation:
    is_one = any(parameter.where == "path" for parameter in parameters)
    errors = FOUND_ERRORS if is_one else ("ENVELOPE_INVALID",)
    if LIMIT in parameters or BATCH_ID in parameters:
        errors = (*errors, *LIST_ERRORS)
    return Operation(
        method="GET", path=path, name=name, handler=handler, summary=summary, tag="runbooks", role="read",
        answer=answer, errors=errors, parameters=parameters,
    )  # fmt: skip


def _runbook(
    act: str, name: str, handler: Handler, summary: str, role: str, answer: str, body: str = "Reason",
    errors: tuple[str, ...] = ("NOT_FOUND", *BODY_ERRORS),
) -> Operation:  # fmt: skip
    return Operation(
        method="POST", path=f"/v1/runbooks/{{name}}:{act}", name=name, handler=handler, summary=summary,
        tag="runbooks", role=role, body=body, body_required=False, answer=answer, errors=errors,
        parameters=(NAME,),
    )  # fmt: skip


def _batch(
    act: str, name: str, handler: Handler, summary: str, body: str = "Reason", is_required: bool = False,
    errors: tuple[str, ...] = ACT_ERRORS,
) -> Operation:  # fmt: skip
    return Operation(
        method="POST", path=f"/v1/batches/{{batch_id}}:{act}", name=name, handler=handler, summary=summary,
        tag="runbooks", role="operate", body=body, body_required=is_required, answer="BatchActed",
        errors=errors, parameters=(BATCH_ID,),
    )  # fmt: skip


def _phase(act: str, name: str, handler: Handler, summary: str) -> Operation:
    return Operation(
        method="POST", path=f"/v1/batches/{{batch_id}}/phases/{{phase}}:{act}", name=name, handler=handler,
        summary=summary, tag="runbooks", role="operate", body="Reason", body_required=False,
        answer="BatchActed", errors=ACT_ERRORS, parameters=(BATCH_ID, PHASE),
    )  # fmt: skip


def _worker(path: str, name: str, handler: Handler, summary: str, body: str, answer: str, *errors: str) -> Operation:
    return Operation(
        method="POST", path=path, name=name, handler=handler, summary=summary, tag="workers", role="work",
        body=body, answer=answer, errors=(*BODY_ERRORS, *errors),
    )  # fmt: skip


RUNBOOK_OPERATIONS: tuple[Operation, ...] = (
    _read("/v1/runbooks", "listRunbooks", runbooks.list_runbooks, "List the runbooks and their state", "RunbookList"),
    Operation(
        method="POST", path="/v1/runbooks", name="publishRunbook", handler=runbooks.publish, tag="runbooks",
        summary="Publish a runbook: its text becomes the active version", role="admin",
        body="RunbookText", status=201, answer="RunbookPublished", errors=(*BODY_ERRORS, "RUNBOOK_INVALID", "CONFLICT"),
    ),
    Operation(
        method="POST", path="/v1/runbooks:validate", name="validateRunbook", handler=runbooks.validate, tag="runbooks",
        summary="Validate a runbook without publishing it", role="read",
        body="RunbookDraft", answer="RunbookValidation", errors=BODY_ERRORS,
    ),
    _read(
        "/v1/runbook-schema", "getRunbookSchema", runbooks.schema, "The JSON Schema of runbooks, for editors", "Empty"
    ),
    _read("/v1/runbooks/{name}", "getRunbook", runbooks.get, "A runbook's text and versions", "Runbook", NAME, VERSION),
    _read(
        "/v1/runbooks/{name}/diff", "diffRunbook", runbooks.diff, "Compare two versions", "RunbookDiff", NAME,
        FROM, TO,
    ),
    _read(
        "/v1/runbooks/{name}/events", "getRunbookEvents", runbooks.events, "The runbook's audit trail, newest first",
        "RunbookEventList", NAME, LIMIT, CURSOR,
    ),
    _runbook(
        "retire", "retireRunbook", runbooks.retire, "Retire a runbook: no new batches; batches in progress continue",
        "admin", "RunbookActed", "Reason",
    ),
    _runbook("stop", "stopRunbook", runbooks.stop, "Stop automation: no source is read, no phase starts automatically",
             "operate", "RunbookActed"),
    _runbook("start", "startRunbook", runbooks.start, "Start automation again", "operate", "RunbookActed"),
    _runbook(
        "confirm", "confirmRunbook", runbooks.confirm,
        "Confirm that the source is correct although it has fewer members",
        "operate", "RunbookActed", "Reason", ACT_ERRORS,
    ),
    _runbook(
        "preview", "previewRunbook", runbooks.preview, "Show the first rows of the runbook's source", "admin",
        "SourcePreview", "PreviewWanted", (*ACT_ERRORS, "SOURCE_FAILED"),
    ),
    _runbook(
        "dry-run", "dryRunRunbook", runbooks.dry_run, "Show every step with its parameters; nothing is written or sent",
        "operate", "DryRun", "DryRunWanted", (*ACT_ERRORS, "MEMBERS_INVALID", "SOURCE_FAILED"),
    ),
    Operation(
        method="POST", path="/v1/runbooks/{name}:rehearse", name="rehearseRunbook", handler=runbooks.rehearse,
        tag="runbooks", summary="Rehearse the active version with simulated workers; the report is kept",
        role="operate", body="RehearsalWanted", status=201, answer="Rehearsal",
        errors=(*ACT_ERRORS, "MEMBERS_INVALID"), parameters=(NAME,),
    ),
    Operation(
        method="GET", path="/v1/runbooks/{name}/rehearsals", name="listRehearsals", handler=runbooks.list_rehearsals,
        tag="runbooks", summary="List the newest rehearsals of a runbook with their reports", role="read",
        answer="RehearsalList", errors=(*FOUND_ERRORS, *LIST_ERRORS), parameters=(NAME,),
    ),
    _read(
        "/v1/runbooks/{name}/rehearsals/{rehearsal_id}", "getRehearsal", runbooks.get_rehearsal,
        "One rehearsal with its report", "Rehearsal", NAME,
        Parameter("rehearsal_id", "path", "JobId", "The rehearsal's id"),
    ),
    _read("/v1/batches", "listBatches", batches.list_batches, "List batches, newest first", "BatchList", *LIST_BATCHES),
    Operation(
        method="POST", path="/v1/batches", name="createBatch", handler=batches.create, tag="runbooks",
        summary="Create a batch from the members in a CSV", role="operate", body="NewBatch",
        status=201, answer="BatchMade", errors=(*ACT_ERRORS, "MEMBERS_INVALID"),
    ),
    _read(
        "/v1/batches/{batch_id}", "getBatch", batches.get, "Get a batch, its phases, and what it waits for",
        "BatchWhole", BATCH_ID,
    ),
    _read(
        "/v1/batches/{batch_id}/members", "listMembers", batches.members,
        "List members with all their steps, and what each waits for", "MemberList", *LIST_MEMBERS,
    ),
    _read(
        "/v1/batches/{batch_id}/grid", "getGrid", batches.grid,
        "Members × steps, one character a cell: whole, or what has changed since a number", "Grid", BATCH_ID,
        Parameter("since", "query", "ChangeNumber", "The `number` of the answer that the caller has"),
    ),
    _read(
        "/v1/batches/{batch_id}/events", "getBatchEvents", batches.events, "The batch's audit trail, newest first",
        "RunbookEventList", BATCH_ID, LIMIT, CURSOR,
    ),
    Operation(
        method="GET", path="/v1/batches/{batch_id}/export", name="exportBatch", handler=batches.export, tag="runbooks",
        summary="Export the batch as CSV: a line per member, a column per step", role="read",
        answer="Text", media_type="text/csv", errors=(*FOUND_ERRORS, *HELD_ERRORS, *LIST_ERRORS),
        parameters=(BATCH_ID, Parameter("status", "query", "MemberFilter", "Only these members")),
    ),
    _batch("advance", "advanceBatch", batches.advance, "Start the next phase now", "Reason"),
    _batch(
        "cancel", "cancelBatch", batches.cancel,
        "Cancel a batch: nothing more is sent; jobs that workers have may finish", "Reason",
    ),
    _batch(
        "pause", "pauseBatch", batches.pause,
        "Pause a batch: nothing new is sent or begun; what workers have begun goes on", "Reason",
    ),
    _batch(
        "resume", "resumeBatch", batches.resume,
        "Resume a batch that was paused, or held because of too many failures", "Reason",
    ),
    _batch(
        "reschedule", "rescheduleBatch", batches.reschedule,
        "Move the phases that have not begun, as if the batch started at another time", "BatchRescheduled", True,
    ),
    _batch("retry", "retryBatch", batches.retry, "Retry the failed step of failed members", "MembersRetried"),
    _batch(
        "confirm-move", "confirmMove", batches.confirm_move,
        "Confirm that held members move to the date that the source has for them", "MembersHeld",
    ),
    _batch(
        "keep", "keepMembers", batches.keep, "Keep held members in the batch although the source has another date",
        "MembersHeld",
    ),
    _batch(
        "send-again", "sendMessagesAgain", batches.send_again, "Send dead messages of the batch again",
        "MessagesNamed",
    ),
    _batch("remove", "removeMembers", batches.remove, "Remove members from the batch", "MembersNamed", True),
    _batch(
        "add", "addMembers", batches.add, "Add members, which catch up", "MembersAdded", True,
        (*ACT_ERRORS, "MEMBERS_INVALID"),
    ),
    _phase(
        "approve", "approvePhase", batches.approve,
        "Approve a phase that needs it; neither its publisher nor the batch's creator may",
    ),
    _phase(
        "refuse", "refusePhase", batches.refuse,
        "Refuse a phase that needs approval: it and later ones do not begin, and the batch fails",
    ),
    _worker(
        "/v1/worker-jobs:pull", "pullWorkerJobs", worker_jobs.pull, "Take a worker's jobs, waiting for the first",
        "WorkerPull", "WorkerJobs", *HELD_ERRORS,
    ),
    _worker(
        "/v1/worker-jobs:renew", "renewWorkerJobs", worker_jobs.renew,
        "Extend the locks of jobs that are still being worked on", "WorkerRenew", "WorkerRenewed",
    ),
    _worker(
        "/v1/worker-results", "takeWorkerResults", worker_jobs.results,
        "Send results of jobs; each is answered on its own", "WorkerResults", "WorkerOutcomes",
    ),
)  # fmt: skip
