"""The component schemas of runbooks, batches and their workers."""

from __future__ import annotations

from collections.abc import Iterable

from lucius.api.runbook_requests import CURSOR_MAX, KEYS_MAX
from lucius.api.runbooks import PREVIEW_ROWS_MAX
from lucius.api.schemas import MOMENT, WHOLE, Schema, list_, object_, or_null, page, ref, text
from lucius.api.worker_jobs import JOB_ID_CHARS_MAX, RESULTS_MAX, WORKER_ID_CHARS_MAX
from lucius.runbooks.definition.names import NAME_CHARS_MAX, VERSION_MAX
from lucius.runbooks.orchestrator.facts import Outcome
from lucius.runbooks.sources.rows import KEY_CHARS_MAX
from lucius.runbooks.states import BATCH, PHASE, STEP
from lucius.runbooks.views.members import MEMBER_FILTERS
from lucius.settings import Settings

BOOL: Schema = {"type": "boolean"}
WORD = or_null(text())
WHEN = or_null(MOMENT)
ANY: Schema = {}
_ID: Schema = {"type": "integer", "minimum": 1, "maximum": CURSOR_MAX}


def _counts(names: Iterable[str]) -> Schema:
    return object_(dict.fromkeys(names, WHOLE))


def _inputs(settings: Settings) -> dict[str, Schema]:
    """What callers send."""
    yaml = text(minLength=1)
    keys = {**list_(text(minLength=1, maxLength=KEY_CHARS_MAX)), "minItems": 1, "maxItems": KEYS_MAX}
    rows: Schema = {"type": "integer", "minimum": 1, "maximum": PREVIEW_ROWS_MAX}
    worker = text(minLength=1, maxLength=WORKER_ID_CHARS_MAX)
    job_ids = {**list_(text(minLength=1, maxLength=JOB_ID_CHARS_MAX)), "minItems": 1, "maxItems": settings.pull_max}
    pull = {
        "max": {"type": "integer", "minimum": 1, "maximum": settings.pull_max},
        "wait_seconds": {"type": "number", "minimum": 0, "maximum": settings.wait_seconds_max},
    }
    results = {**list_(ref("WorkerResult")), "minItems": 1, "maxItems": RESULTS_MAX}
    options = {"overdue_behavior": text(enum=["rerun", "ignore"]), "rerun_init": BOOL}
    new_batch = {"start": WHEN, "advance": text(enum=["time", "manual"])}
    shapes: dict[str, tuple[dict[str, Schema], dict[str, Schema]]] = {
        "Nothing": ({}, {}),
        "RunbookText": ({"yaml": yaml}, options),
        "RunbookDraft": ({"yaml": yaml}, {}),
        "PreviewWanted": ({}, {"limit": rows}),
        "DryRunWanted": ({}, {"csv": or_null(text()), "start": WHEN, "limit": rows}),
        "NewBatch": ({"runbook": ref("RunbookName"), "csv": text()}, new_batch),
        "MembersRetried": ({}, {"members": or_null(keys)}),
        "MembersNamed": ({"members": keys}, {}),
        "MembersAdded": ({"csv": text()}, {}),
        "WorkerPull": ({"workerId": worker}, pull),
        "WorkerRenew": ({"jobIds": job_ids}, {"workerId": or_null(worker)}),
        "WorkerResults": ({"results": results}, {}),
    }
    return {
        name: object_(required, optional, additionalProperties=False) for name, (required, optional) in shapes.items()
    }


def _runbooks() -> dict[str, Schema]:
    source = object_({"state": WORD, "detail": WORD, "members": or_null(WHOLE), "checked_at": WHEN})
    version = {
        "version": WHOLE, "is_active": BOOL, "overdue_behavior": text(), "rerun_init": BOOL, "created_at": MOMENT,
        "created_by": text(),
    }  # fmt: skip
    state = {"automation": BOOL, "source": source}
    fault = object_({"line": WHOLE, "pointer": text(), "message": text()})
    phase = object_({"name": text(), "offset": text()}, {"steps": list_(text()), "due_at": MOMENT})
    difference = object_({"kind": text(), "where": text(), "before": WORD, "after": WORD})
    step = object_(
        {
            "phase": text(), "step": text(), "worker_id": text(), "function": text(), "params": {"type": "object"},
            "waits_for": list_(text()), "fault": WORD,
        }
    )  # fmt: skip
    tried = object_({"member": text(), "steps": list_(step)})
    row_fault = object_({"row": WHOLE, "key": WORD, "message": text()})
    return {
        "RunbookLine": object_({"name": text(), **version, **state, "open_batches": WHOLE}),
        "RunbookList": page("RunbookLine"),
        "RunbookPublished": object_(
            {"name": text(), "version": WHOLE, "published": BOOL, "unchecked": or_null(text())}
        ),
        "RunbookActed": object_({"name": text()}, additionalProperties=True),
        "RunbookValidation": object_({"valid": BOOL, "faults": list_(fault), "phases": list_(phase)}, {"name": text()}),
        "Runbook": object_(
            {
                "name": text(), "version": WHOLE, "yaml": text(), "is_active": BOOL, **state,
                "versions": list_(object_(version)),
            }
        ),
        "RunbookDiff": object_({"name": text(), "from": WHOLE, "to": WHOLE, "differences": list_(difference)}),
        "RunbookEvent": object_(
            {
                "id": WHOLE, "at": MOMENT, "kind": text(), "actor": text(), "batch_id": or_null(WHOLE),
                "member": WORD, "detail": {"type": "object"},
            }
        ),
        "RunbookEventList": page("RunbookEvent"),
        "SourcePreview": object_(
            {"columns": list_(text()), "rows": list_(list_(WORD)), "faults": list_(row_fault), "members": WHOLE}
        ),
        "DryRun": object_(
            {
                "name": text(), "version": WHOLE, "start": MOMENT, "phases": list_(phase), "init": list_(step),
                "members": list_(tried), "total_members": WHOLE,
            }
        ),
    }  # fmt: skip


def _batches() -> dict[str, Schema]:
    line = {
        "batch_id": _ID, "runbook": text(), "version": WHOLE, "start": MOMENT, "status": ref("BatchStatus"),
        "origin": text(), "advance": text(), "held_at": WHEN, "hold_reason": WORD, "error": WORD,
        "detected_at": MOMENT, "completed_at": WHEN, "members": _counts(("active", "removed", "failed")),
        "phases": _counts(PHASE),
    }  # fmt: skip
    status = text(enum=list(STEP))
    times = {"error": WORD, "dispatched_at": WHEN, "completed_at": WHEN}
    init = object_({"version": WHOLE, "step": text(), "status": status, "attempts": WHOLE, **times})
    counted = object_({"step": text(), "step_index": WHOLE, "counts": _counts(STEP)})
    phase = object_(
        {
            "phase": text(), "version": WHOLE, "offset": text(), "due_at": MOMENT, "status": text(enum=list(PHASE)),
            **times, "steps": list_(counted),
        }
    )  # fmt: skip
    step = object_(
        {"phase": text(), "step": text(), "status": status, "attempts": WHOLE, **times},
        {"result": ANY, "result_chars": WHOLE},
    )
    followup = object_({"kind": text(), "list": text(), "step": text(), "status": status, "error": WORD})
    return {
        "BatchStatus": text(enum=list(BATCH)),
        "MemberFilter": text(enum=list(MEMBER_FILTERS)),
        "Batch": object_(line),
        "BatchList": page("Batch"),
        "BatchWhole": object_(
            {**line, "init": list_(init), "phase_list": list_(phase), "waiting_for": list_(text())}
        ),
        "BatchMade": object_({"batch_id": _ID, "runbook": text(), "version": WHOLE, "members": WHOLE}),
        "BatchActed": object_({"batch_id": _ID}, additionalProperties=True),
        "Member": object_(
            {
                "member_id": _ID, "member": text(), "status": text(enum=["active", "removed"]), "failed_at": WHEN,
                "added_at": MOMENT, "removed_at": WHEN, "steps": list_(step), "followups": list_(followup),
                "waiting_for": WORD,
            }
        ),
        "MemberList": page("Member"),
    }  # fmt: skip


def _workers() -> dict[str, Schema]:
    job = {
        "jobId": text(), "batchId": _ID, "workerId": text(), "functionName": text(), "parameters": {"type": "object"},
        "correlationData": {"type": "object"},
    }  # fmt: skip
    error = object_({}, {"message": WORD, "type": WORD, "isThrottled": or_null(BOOL), "attempts": or_null(WHOLE)})
    told = object_({"jobId": text(), "outcome": text(enum=list(Outcome))})
    refused = object_({"jobId": WORD, "code": ref("ErrorCode"), "detail": text()})
    return {
        "WorkerJob": object_(job),
        "WorkerJobs": object_({"jobs": list_(ref("WorkerJob"))}),
        "WorkerRenewed": object_({"renewed": list_(BOOL)}),
        "WorkerResult": object_(
            {"jobId": text(minLength=1, maxLength=JOB_ID_CHARS_MAX), "status": text(enum=["Success", "Failure"])},
            {"result": ANY, "error": {"anyOf": [error, text(), {"type": "null"}]}},
            additionalProperties=True,
        ),
        "WorkerOutcomes": object_({"outcomes": list_({"anyOf": [told, refused]})}),
    }


def runbook_components(settings: Settings) -> dict[str, Schema]:
    return {
        "RunbookName": text(pattern=f"^[A-Za-z][A-Za-z0-9 _-]{{0,{NAME_CHARS_MAX - 1}}}$"),
        "RunbookVersion": {"type": "integer", "minimum": 1, "maximum": VERSION_MAX},
        "BatchId": _ID,
        "IdCursor": _ID,
        **_inputs(settings),
        **_runbooks(),
        **_batches(),
        **_workers(),
    }
