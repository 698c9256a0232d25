"""Component schemas of runbooks, batches and their workers that have no type of their own: parameters, the jobs that
are put together from JSON, and results, which are read in any letter case."""

from __future__ import annotations

from lucius.api.schemas import Schema, list_, object_, or_null, text
from lucius.api.worker_jobs import JOB_ID_CHARS_MAX
from lucius.domain.json_types import ref
from lucius.runbooks.core.answers import ID_MAX
from lucius.runbooks.core.definition.names import NAME_PATTERN, VERSION_MAX
from lucius.runbooks.core.states import BATCH
from lucius.runbooks.service.views.members import MEMBER_FILTERS

BOOL: Schema = {"type": "boolean"}
WORD = or_null(text())
ID: Schema = {"type": "integer", "minimum": 1, "maximum": ID_MAX}


def _workers() -> dict[str, Schema]:
    job = {
        "jobId": text(), "batchId": ID, "workerId": text(), "functionName": text(), "parameters": {"type": "object"},
        "correlationData": object_({}, {"token": text()}),
    }  # fmt: skip
    attempts: Schema = {"type": "integer", "minimum": 0}
    error = object_({}, {"message": WORD, "type": WORD, "isThrottled": or_null(BOOL), "attempts": or_null(attempts)})
    return {
        "WorkerJob": object_(job),
        "WorkerJobs": object_({"jobs": list_(ref("WorkerJob"))}),
        "WorkerResult": object_(
            {"jobId": text(minLength=1, maxLength=JOB_ID_CHARS_MAX), "status": text(enum=["Success", "Failure"])},
            {
                "result": {},
                "error": {"anyOf": [error, text(), {"type": "null"}]},
                "correlationData": or_null(object_({}, {"token": WORD})),
            },
        ),
    }


def runbook_components() -> dict[str, Schema]:
    return {
        "RunbookName": text(pattern=f"^{NAME_PATTERN}$"),
        "RunbookVersion": {"type": "integer", "minimum": 1, "maximum": VERSION_MAX},
        "BatchId": ID,
        "IdCursor": ID,
        "ChangeNumber": {"type": "integer", "minimum": 0, "maximum": ID_MAX},
        "BatchStatus": text(enum=list(BATCH)),
        "MemberFilter": text(enum=list(MEMBER_FILTERS)),
        **_workers(),
    }
