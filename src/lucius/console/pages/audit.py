"""Audit: what people did, to what, why and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from lucius.api.admin_answers import AuditEntry
from lucius.api.audit import read_audit_cursor, read_audit_filter, show_audit_entry
from lucius.api.lists import list_slot
from lucius.api.requests import Parameters
from lucius.console.page import Page, Piece, View
from lucius.ports.audit import AuditFilter, AuditKind

PAGE_SIZE = 50
PLACES = {
    AuditKind.JOB: "/jobs/", AuditKind.DEAD_LETTER: "/jobs/", AuditKind.OPERATION: "/operations/",
    AuditKind.RUNBOOK: "/runbooks/", AuditKind.BATCH: "/batches/",
}  # fmt: skip
"""Where the page of a target is, by kind."""
CHANGES = ("jobs", "operations", "runbooks", "batches", "audit")
"""Every act changes one of these; `audit` stands for those that change nothing that is followed."""


def _filter(view: View) -> tuple[AuditFilter, str | None]:
    call = view.call
    parameters = Parameters(call.request)
    filter_, cursor = read_audit_filter(call, parameters), read_audit_cursor(parameters)
    parameters.close()
    return filter_, cursor


async def _frame(view: View) -> Mapping[str, Any]:
    _filter(view)
    given = {name: value for name, value in view.query.items() if name != "cursor"}
    return {"given": given, "kinds": [kind.value for kind in AuditKind]}


async def _list(view: View) -> Mapping[str, Any]:
    filter_, cursor = _filter(view)
    async with list_slot(view.call):
        entries, following = await view.context.audit.newest(filter_, PAGE_SIZE, cursor)
    query = {name: value for name, value in view.query.items() if name != "cursor"}
    return {
        "entries": [(shown, _place(shown), _detail(shown)) for shown in map(show_audit_entry, entries)],
        "older": None if following is None else view.address(**{**query, "cursor": following}),
        "newest": None if cursor is None else view.address(**query),
        "query": query,
    }


def _place(entry: AuditEntry) -> str:
    return f"{PLACES[AuditKind(entry['kind'])]}{quote(entry['target'], safe='')}"


def _detail(entry: AuditEntry) -> str:
    return msgspec.json.encode(entry["detail"]).decode() if entry["detail"] else ""


PAGE = Page(
    path="/audit",
    title="Audit",
    section="audit",
    template="audit.html",
    load=_frame,
    pieces=(
        Piece(
            name="list", template="audit_list.html", load=_list, follows=lambda view: CHANGES,
            holds_still=True,
        ),
    ),
)  # fmt: skip
