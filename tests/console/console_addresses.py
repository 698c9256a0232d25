"""Addresses of every page, act and download, made from the console's own table: a new one cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from starlette.routing import compile_path
from tests.console.batch_scenario import Batch
from tests.console.console_server import Server

import lucius.console
from lucius.console.routes import ACTS, DOWNLOADS, PAGES

PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")
FIELD = re.compile(r"""form\.(?:text|number)\(\s*f?["']([a-z_]+)""")
NEEDED = {"/operations/new": "action=cancel", "/find": "id={job_id}"}
"""Queries without which a page shows nothing."""


def filled(path: str, values: Mapping[str, str]) -> str:
    """The path with a value in the place of each parameter. One without a value is new: give it one in `values_of`."""
    query = NEEDED.get(path, "")
    return PLACEHOLDER.sub(lambda found: values[found[1]], f"{path}?{query}" if query else path)


def values_of(
    *, job_id: str, operation_id: str, batch_id: str, member_id: str, runbook: str, rehearsal_id: str, tenant: str
) -> dict[str, str]:
    """A value for every parameter that a path has."""
    return {
        "job_id": job_id, "operation_id": operation_id, "batch_id": batch_id, "member_id": member_id,
        "protocol_id": "OCR", "name": runbook, "rehearsal_id": rehearsal_id, "tenant_id": tenant,
    }  # fmt: skip


def make_values(server: Server, job_id: str, batch: Batch, tenant: str, reason: str = "x") -> dict[str, str]:
    """The same, with an operation on the jobs of this tenant."""
    member = batch.call("GET", f"/v1/batches/{batch.id}/members")["items"][0]["member_id"]
    body = {"action": "pause", "filter": {"tenant_id": tenant}, "reason": reason}
    operation = server.client.post("/v1/operations", json=body).json()["operationId"]
    runbook = batch.shown["runbook"]
    rehearsal = batch.call("POST", f"/v1/runbooks/{runbook}:rehearse", {"count": 1})["rehearsal_id"]
    return values_of(
        job_id=job_id, operation_id=operation, batch_id=str(batch.id), member_id=str(member), runbook=runbook,
        rehearsal_id=str(rehearsal), tenant=tenant,
    )  # fmt: skip


def pages(values: Mapping[str, str]) -> dict[str, str]:
    """By path as declared, the address."""
    return {page.path: filled(page.path, values) for page in PAGES}


def pieces(values: Mapping[str, str]) -> dict[str, str]:
    return {
        f"{page.path} {piece.name}": f"{address}{'&' if '?' in address else '?'}piece={piece.name}"
        for page in PAGES
        for piece in page.pieces
        for address in [filled(page.path, values)]
    }


def downloads(values: Mapping[str, str]) -> dict[str, str]:
    return {download.path: filled(download.path, values) for download in DOWNLOADS}


def acts(values: Mapping[str, str]) -> dict[str, str]:
    return {act.path: filled(act.path, values) for act in ACTS}


def act_at(path: str) -> str | None:
    """The act, as declared, that a form sent to this path does."""
    return next((act.path for act in ACTS if compile_path(act.path)[0].match(path)), None)


def fields() -> list[str]:
    """Every field that any form has, read from the source."""
    folder = Path(lucius.console.__file__).parent
    return sorted({name for path in folder.rglob("*.py") for name in FIELD.findall(path.read_text())})
