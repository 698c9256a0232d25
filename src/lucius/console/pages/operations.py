"""Bulk operations: a preview with its number, then progress and what became of each job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lucius.api.bulk_operations import (
    NUMBER_MAX,
    OperationFilter,
    read_filter,
    show_item,
    show_operation,
)
from lucius.api.job_views import show_job
from lucius.api.lists import list_slot
from lucius.api.requests import JOB_ID
from lucius.console.forms import Form
from lucius.console.page import Act, Page, Piece, View
from lucius.domain.bulk_operation import BULK_TRANSITIONS, BulkAction, BulkFilter, BulkMove, ItemStatus
from lucius.domain.errors import CallerError
from lucius.usecases.bulk_operations import RATE_DEFAULT, RATE_MAX, BulkWish

ITEMS_SHOWN = 50
OPERATIONS_SHOWN = 50
FIELDS = ("tenant_id", "status", "request_type", "created_from", "created_to", "error_signature")
WORDS = {"PAUSED": ("pause", "Pause"), "RESUMED": ("resume", "Resume"), "ABANDONED": ("abandon", "Abandon")}


def _action(text: str) -> BulkAction:
    try:
        return BulkAction(text)
    except ValueError:
        raise CallerError.of("ENVELOPE_INVALID", f"action must be one of {', '.join(BulkAction)}") from None


def _filter(view: View, given: Mapping[str, str]) -> BulkFilter:
    named = {name: given[name] for name in FIELDS if given.get(name)}
    try:
        return read_filter(view.call, msgspec.convert(named, OperationFilter))
    except msgspec.ValidationError as error:
        raise CallerError.of("ENVELOPE_INVALID", f"the filter: {error}") from None


async def _preview(view: View) -> Mapping[str, Any]:
    view.require("operate")
    query = view.query
    action = _action(query.get("action", ""))
    unknown = set(query) - {*FIELDS, "action"}
    if unknown:
        raise CallerError.of("ENVELOPE_INVALID", f"an operation cannot select jobs by {sorted(unknown)[0]:.40}")
    async with list_slot(view.call):
        found = await view.context.bulk.preview(action, _filter(view, query))
    given = {name: query[name] for name in FIELDS if name in query}
    return {
        "title": f"{action.value.capitalize()} jobs",
        "action": action.value,
        "given": given,
        "count": found.count,
        "sample": [show_job(job) for job in found.sample],
        "rate_default": f"{RATE_DEFAULT:g}",
        "canary_default": min(5, found.count) if action is BulkAction.REDRIVE and found.count > 1 else 0,
    }


async def _create(view: View, form: Form) -> str:
    given = {name: form.text(name, 1_000) for name in FIELDS}
    most = form.text("max_failures", 12)
    wish = BulkWish(
        action=_action(form.text("action")),
        filter=_filter(view, given),
        reason=form.reason(),
        rate_per_second=max(1.0, float(form.number("rate_per_second", int(RATE_DEFAULT), int(RATE_MAX)))),
        canary=form.number("canary", 0, NUMBER_MAX),
        canary_max_failures=form.number("canary_max_failures", 0, NUMBER_MAX),
        max_failures=form.number("max_failures", 0, NUMBER_MAX) if most else None,
    )
    async with list_slot(view.call):
        operation, _ = await view.context.bulk.create(wish, view.visitor.principal.name, None)
    return view.address(f"/operations/{operation.operation_id}")


def _id(view: View) -> str:
    operation_id: str = view.request.path_params["operation_id"]
    if not JOB_ID.fullmatch(operation_id):
        raise CallerError.of("NOT_FOUND", "there is no such operation")
    return operation_id


async def _progress(view: View) -> Mapping[str, Any]:
    bulk = view.context.bulk
    operation = await bulk.get(_id(view), view.visitor.principal.tenants)
    wanted = view.query.get("outcome", "")
    status = ItemStatus(wanted) if wanted in list(ItemStatus) else None
    items, following = await bulk.items(operation, ITEMS_SHOWN, view.query.get("cursor"), status)
    moves = [
        WORDS[move.value]
        for move in (BulkMove.PAUSED, BulkMove.RESUMED, BulkMove.ABANDONED)
        if (operation.status, move) in BULK_TRANSITIONS and view.visitor.may("operate")
    ]
    return {
        "operation": show_operation(operation), "items": [show_item(item) for item in items], "moves": moves,
        "outcomes": [one.value for one in ItemStatus], "wanted": wanted, "is_active": operation.is_active,
        "older": None if following is None else view.address(**{**view.query, "cursor": following}),
    }  # fmt: skip


def _steer(move: BulkMove) -> Any:
    async def run(view: View, form: Form) -> str:
        principal = view.visitor.principal
        await view.context.bulk.steer(_id(view), move, principal.tenants, principal.name, form.reason())
        return view.address(f"/operations/{_id(view)}")

    return run


async def _title(view: View) -> Mapping[str, Any]:
    operation = await view.context.bulk.get(_id(view), view.visitor.principal.tenants)
    return {"title": f"Operation: {operation.action.value} jobs"}


async def _newest(view: View) -> Mapping[str, Any]:
    tenants, cursor = view.visitor.principal.tenants, view.query.get("cursor")
    async with list_slot(view.call):
        found, following = await view.context.bulk.newest(tenants, OPERATIONS_SHOWN, cursor)
    older = None if following is None else view.address(cursor=following)
    return {"operations": [show_operation(one) for one in found], "older": older}


def _operations(view: View) -> tuple[str, ...]:
    return ("operations",)


PAGES = (
    Page(
        path="/operations", title="Operations", section="operations", template="operations.html",
        pieces=(
            Piece(
                name="list", template="operations_list.html", load=_newest, follows=_operations, seconds_max=1,
                every_seconds=5, holds_still=True,
            ),
        ),
    ),
    Page(
        path="/operations/new", title="Preview", section="operations", template="operation_new.html", load=_preview,
        role="operate",
    ),
    Page(
        path="/operations/{operation_id}", title="Operation", section="operations", template="operation.html",
        load=_title,
        pieces=(
            Piece(
                name="progress", template="operation_progress.html", load=_progress, follows=_operations,
                seconds_max=0.5, holds_still=True, every_seconds=5,
            ),
        ),
    ),
)  # fmt: skip
ACTS = (
    Act(path="/operations", run=_create),
    *(
        Act(path=f"/operations/{{operation_id}}/{word}", run=_steer(BulkMove(move)))
        for move, (word, _) in WORDS.items()
    ),
)
