"""The members of a batch as a table, a page at a time: the grid for those who cannot see it. And one member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lucius.console.page import Page, Piece, View
from lucius.console.pages import batch
from lucius.console.pages.batch_address import batch_id, member_id, number_in
from lucius.domain.errors import CallerError
from lucius.runbooks.service.views.members import MEMBER_FILTERS

ROWS = 50
RESULT_CHARS_MAX = 20_000

_encode = msgspec.json.Encoder().encode


async def _table(view: View) -> Mapping[str, Any]:
    number, query = batch_id(view), view.query
    status = query.get("status", "all")
    if status not in MEMBER_FILTERS:
        raise CallerError.of("ENVELOPE_INVALID", f"status must be one of {', '.join(MEMBER_FILTERS)}")
    key = query.get("key")
    if key is not None and ("\x00" in key or len(key) > 1_000):
        raise CallerError.of("ENVELOPE_INVALID", "key must have at most 1000 characters")
    after = number_in(query, "cursor")
    queries = view.context.runbooks.queries
    items, following = await queries.members(number, status, key, ROWS, after)
    columns = list(dict.fromkeys((step["phase"], step["step"]) for member in items for step in member["steps"]))
    rows = [(member, {(step["phase"], step["step"]): step for step in member["steps"]}) for member in items]
    return {
        "number": number, "rows": rows, "columns": columns, "following": following, "status": status,
        "query": {name: value for name, value in query.items() if name != "cursor"},
    }  # fmt: skip


async def _frame(view: View) -> Mapping[str, Any]:
    number = batch_id(view)
    await view.context.runbooks.queries.change_number(number)
    return {
        "title": f"Members of batch {number}", "number": number, "filters": MEMBER_FILTERS, "query": view.query,
    }  # fmt: skip


async def _member(view: View) -> Mapping[str, Any]:
    number, wanted = batch_id(view), member_id(view)
    queries = view.context.runbooks.queries
    found, _ = await queries.members(number, "all", None, 1, wanted - 1)
    if not found or found[0]["member_id"] != wanted:
        raise CallerError.of("NOT_FOUND", f"batch {number} has no member {wanted}")
    # By its key, results are complete; the same key may have joined more than once.
    same, _ = await queries.members(number, "all", found[0]["member"], ROWS, None)
    member = next((one for one in same if one["member_id"] == wanted), found[0])
    results = [_shown(step.get("result")) for step in member["steps"]]
    has_failed = member["failed_at"] is not None and member["status"] == "active"
    return {"number": number, "member": member, "results": results, "has_failed": has_failed}


def _shown(result: Any) -> str | None:
    if result is None:
        return None
    text = msgspec.json.format(_encode(result), indent=2).decode()
    return (
        text
        if len(text) <= RESULT_CHARS_MAX
        else f"{text[:RESULT_CHARS_MAX]}\n… cut after {RESULT_CHARS_MAX} characters"
    )


async def _member_frame(view: View) -> Mapping[str, Any]:
    loaded = await _member(view)
    return {"title": f"{loaded['member']['member'][:80]}, batch {loaded['number']}", **loaded}


PAGE = Page(
    path="/batches/{batch_id}/members",
    title="Members",
    section="batches",
    template="batch_members.html",
    load=_frame,
    pieces=(
        Piece(
            name="table", template="batch_members_table.html", load=_table, follows=batch.follows, holds_still=True,
            stamp=batch.number_stamp,
        ),
    ),
)  # fmt: skip
MEMBER_PAGE = Page(
    path="/batches/{batch_id}/members/{member_id}",
    title="Member",
    section="batches",
    template="batch_member.html",
    load=_member_frame,
    pieces=(
        Piece(
            name="member", template="batch_member_state.html", load=_member, follows=batch.follows, holds_still=True,
            stamp=batch.number_stamp,
        ),
    ),
    notices=batch.PAGE.notices,
)  # fmt: skip
