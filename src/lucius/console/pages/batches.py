"""The list of batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucius.api.batches import PAGE_SIZE
from lucius.console.page import Page, Piece, View
from lucius.console.pages.batch_address import number_in
from lucius.domain.errors import CallerError
from lucius.runbooks.core.states import BATCH

NAME_CHARS_MAX = 256


async def _load(view: View) -> Mapping[str, Any]:
    query = view.query
    status = query.get("status")
    if status is not None and status not in BATCH:
        raise CallerError.of("ENVELOPE_INVALID", f"status must be one of {', '.join(BATCH)}")
    runbook = query.get("runbook")
    before = number_in(query, "cursor")
    if runbook is not None and (len(runbook) > NAME_CHARS_MAX or "\x00" in runbook):
        raise CallerError.of("ENVELOPE_INVALID", f"runbook must have at most {NAME_CHARS_MAX} characters")
    queries = view.context.runbooks.queries
    items, following = await queries.batches(runbook, status, PAGE_SIZE, before, scope=view.runbook_scope)
    return {"batches": items, "older": None if following is None else str(following), "is_first": before is None}


async def _frame(view: View) -> Mapping[str, Any]:
    return {"statuses": tuple(BATCH), "query": view.query}


PAGE = Page(
    path="/batches",
    title="Batches",
    section="batches",
    template="batches.html",
    load=_frame,
    pieces=(
        Piece(
            name="list", template="batches_list.html", load=_load, follows=lambda view: ("batches",), holds_still=True
        ),
    ),
)
