"""Jobs: a list with filters in its address, newest first; export; a way to one job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from lucius.api.holding import HeldStream, hold
from lucius.api.job_views import show_job, show_listed_job
from lucius.api.jobs import read_job_filter, searchable_fields
from lucius.api.lists import list_slot
from lucius.api.requests import JOB_ID, Parameters
from lucius.console.causes import CAUSES
from lucius.console.job_views import COLUMNS as COLUMNS_SHOWN
from lucius.console.job_views import NOTICES, saved_views, shown_columns
from lucius.console.page import Download, Page, Piece, View
from lucius.domain.bulk_operation import BulkAction
from lucius.domain.errors import CallerError
from lucius.domain.job import Job, JobStatus
from lucius.ports.ledger import JobFilter, UnreadableJob
from lucius.runbooks.sources.csv_text import write_csv
from lucius.usecases.waits import WaitKind

PAGE_SIZE = 50
EXPORT_PAGE = 200
EXPORT_JOBS_MAX = 100_000
FORMATS = ("csv", "jsonl")
COLUMNS = (
    "jobId", "tenant_id", "request_type", "status", "current_step_id", "created_at", "completed_at", "attempts_total",
    "idempotency_key", "correlation_id", "error_code", "error_message", "error_signature",
)  # fmt: skip
NOT_A_FILTER = ("cursor", "format")
NOT_FOR_OPERATIONS = {"waits_for", "correlation_id", "idempotency_key", "payload", "job_id_prefix"}

_encode = msgspec.json.Encoder().encode


def _filter(view: View) -> tuple[JobFilter, str | None]:
    call = view.call
    parameters = Parameters(call.request)
    filter_, cursor = read_job_filter(call, parameters), parameters.job_cursor()
    parameters.close()
    return filter_, cursor


async def _frame(view: View) -> Mapping[str, Any]:
    _filter(view)
    given = {name: value for name, value in view.query.items() if name not in NOT_A_FILTER}
    return {
        "given": given,
        "statuses": [status.value for status in JobStatus],
        "causes": CAUSES,
        "request_types": sorted(view.context.registry.snapshot().request_types),
        "actions": [action.value for action in BulkAction] if view.visitor.may("operate") else [],
        "can_act": not given.keys() & NOT_FOR_OPERATIONS and "," not in given.get("status", ""),
        "searchable": searchable_fields(view.call),
        "formats": FORMATS,
        "export_max": EXPORT_JOBS_MAX,
        "saved": await saved_views(view),
        "query": urlencode(given),
        "columns": COLUMNS_SHOWN,
        "shown": shown_columns(view),
    }


async def _columns(view: View) -> tuple[str, ...]:
    return shown_columns(view)


async def _list(view: View) -> Mapping[str, Any]:
    filter_, cursor = _filter(view)
    async with list_slot(view.call):
        jobs, following = await view.context.queries.jobs(filter_, PAGE_SIZE, cursor)
    absent = view.context.sightings.absent_service
    query = {name: value for name, value in view.query.items() if name != "cursor"}
    return {
        "jobs": [show_listed_job(job, absent) for job in jobs],
        "older": None if following is None else view.address(**{**query, "cursor": following}),
        "newest": None if cursor is None else view.address(**query),
        "is_filtered": bool(query),
        "columns": COLUMNS_SHOWN,
        "shown": shown_columns(view),
        "causes": CAUSES,
    }


async def _export(view: View) -> Response:
    query = dict(view.query)
    wanted = query.pop("format", "csv")
    if wanted not in FORMATS:
        raise CallerError.of("ENVELOPE_INVALID", f"format must be one of {', '.join(FORMATS)}")
    call = view.call
    call.request.scope["query_string"] = "&".join(
        part for part in call.request.scope["query_string"].decode().split("&") if not part.startswith("format=")
    ).encode()
    parameters = Parameters(call.request)
    filter_ = read_job_filter(call, parameters)
    parameters.close()
    slot = hold(call, WaitKind.STREAM)
    kind = "text/csv; charset=utf-8" if wanted == "csv" else "application/jsonl"
    return HeldStream(
        slot,
        _lines(view, filter_, wanted),
        kind,
        {"Content-Disposition": f'attachment; filename="jobs.{wanted}"'},
    )


async def _lines(view: View, filter_: JobFilter, wanted: str) -> AsyncGenerator[bytes | str, None]:
    cursor: str | None = None
    count = 0
    if wanted == "csv":
        yield write_csv(COLUMNS, [])
    while count < EXPORT_JOBS_MAX:
        async with list_slot(view.call):
            jobs, cursor = await view.context.queries.jobs(filter_, EXPORT_PAGE, cursor)
        count += len(jobs)
        yield _csv(jobs) if wanted == "csv" else _json_lines(view, jobs)
        if cursor is None:
            return


def _csv(jobs: list[Job | UnreadableJob]) -> str:
    rows: list[tuple[object, ...]] = []
    for job in jobs:
        if isinstance(job, UnreadableJob):
            rows.append((job.job_id, job.tenant_id, *(None,) * 8, "ROW_UNREADABLE", None, None))
            continue
        shown = show_job(job)
        error = job.error
        rows.append(
            (
                *(shown.get(name) for name in COLUMNS[:-3]),
                error.code if error else None,
                error.message if error else None,
                shown["error_signature"],
            )
        )
    return write_csv((), rows).partition("\r\n")[2]


def _json_lines(view: View, jobs: list[Job | UnreadableJob]) -> bytes:
    absent = view.context.sightings.absent_service
    return b"".join(_encode(show_listed_job(job, absent)) + b"\n" for job in jobs)


async def _find(view: View) -> Response:
    """To the job with this id."""
    wanted = view.query.get("id", "").strip().lower()
    if not JOB_ID.fullmatch(wanted):
        detail = "this is not a job id: 32 hex digits in five groups, such as 019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"
        raise CallerError.of("JOB_NOT_FOUND", detail)
    return RedirectResponse(view.address(f"/jobs/{wanted}"), 303)


PAGE = Page(
    path="/jobs",
    title="Jobs",
    section="jobs",
    template="jobs.html",
    load=_frame,
    pieces=(
        Piece(
            name="list", template="jobs_list.html", load=_list, follows=lambda view: ("jobs",), holds_still=True,
            stamp=_columns,
        ),
    ),
    notices=NOTICES,
)  # fmt: skip
DOWNLOADS = (Download(path="/jobs/export", run=_export), Download(path="/find", run=_find))
