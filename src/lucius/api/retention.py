"""Pruning a running server's jobs, and looking up those that were archived."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct
from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.endpoint import Call, JsonResponse, answer
from lucius.api.jobs import read_job_id
from lucius.api.operation import BODY_ERRORS, Operation, Parameter
from lucius.api.requests import SMALL_BODY_BYTES_MAX, Parameters, read_typed
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.json_types import stated
from lucius.ports.archive import ArchiveUnavailable

PRUNE_SECONDS = 10.0
"""How long one call prunes; then the caller asks again."""
OLDEST_SECONDS = 100 * 366 * 86_400


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    older_than_seconds: Annotated[float, stated(minimum=1, maximum=OLDEST_SECONDS)]
    """How long ago the job ended."""


async def prune(call: Call) -> Response:
    wanted = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Prune)
    if not 1 <= wanted.older_than_seconds <= OLDEST_SECONDS:
        detail = f"older_than_seconds must be between 1 and {OLDEST_SECONDS}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/older_than_seconds")
    try:
        done = await call.context.retention.prune(wanted.older_than_seconds, PRUNE_SECONDS, call.caller.name)
    except ArchiveUnavailable as error:
        raise InfrastructureError.unavailable(f"nothing more was removed, because {error}") from error
    return answer(
        admin_answers.Pruned(jobs=done.jobs, archived=done.archived, operations=done.operations, more=done.is_more)
    )


async def get_archived(call: Call) -> Response:
    Parameters(call.request).close()
    job_id, archive = read_job_id(call), call.context.retention.archive
    if archive is None:
        raise CallerError.of("JOB_NOT_FOUND", "this server has no archive: LUCIUS_ARCHIVE is not set")
    try:
        found = await archive.find(job_id, call.caller.tenants)
    except ArchiveUnavailable as error:
        raise InfrastructureError.unavailable(str(error)) from error
    if found is None or not call.sees(str(msgspec.json.decode(found, type=_Whose).tenant_id)):
        raise CallerError.of("JOB_NOT_FOUND", "the archive has no such job")
    return JsonResponse(found)


class _Whose(Struct):
    tenant_id: str


RETENTION_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/admin/prune", name="pruneJobs", handler=prune, tag="operators", role="admin",
        summary="Archive and delete jobs that ended long ago, for up to 10 seconds", on_all_tenants=True, body="Prune",
        answer="Pruned", errors=(*BODY_ERRORS, "UNAVAILABLE"),
    ),
    Operation(
        method="GET", path="/v1/archive/jobs/{job_id}", name="getArchivedJob", handler=get_archived, tag="jobs",
        summary="Get a job from the archive, with its steps, attempts and events", role="read", answer="ArchivedJob",
        errors=("JOB_NOT_FOUND", "ENVELOPE_INVALID", "UNAVAILABLE"),
        parameters=(Parameter("job_id", "path", "JobId", "The job's id"),),
    ),
)  # fmt: skip
