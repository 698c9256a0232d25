"""Tenants: who uses how much of what they may, who is refused, who fails, and who waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lucius.api.figures import visible_tenants
from lucius.api.lists import list_slot
from lucius.console.page import Page, Piece, View
from lucius.domain.errors import CallerError
from lucius.domain.routing import normal_form
from lucius.domain.time import iso
from lucius.usecases.figures import WINDOWS, TenantFigures

SHOWN_MAX = 200
NAME_CHARS_MAX = 128
ORDERS: dict[str, tuple[str, Callable[[TenantFigures], Any]]] = {
    "used": ("how full", lambda one: -one.inflight / max(1, one.max_inflight)),
    "waiting": ("who waits longest", lambda one: one.oldest_waiting or "~"),
    "failed": ("most failures", lambda one: -one.counts.get("FAILED_FINAL", 0)),
    "refused": ("most refusals", lambda one: -one.counts.get("REFUSED", 0)),
    "ended": ("most throughput", lambda one: -one.ended),
}
"""Words, and what is sorted by."""


def _asked(view: View) -> tuple[str, str, str]:
    query = view.query
    window, order, name = query.get("window", "hour"), query.get("order", "used"), query.get("name", "")
    if window not in WINDOWS:
        raise CallerError.of("ENVELOPE_INVALID", f"window must be one of {', '.join(WINDOWS)}")
    if order not in ORDERS:
        raise CallerError.of("ENVELOPE_INVALID", f"order must be one of {', '.join(ORDERS)}")
    if len(name) > NAME_CHARS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"name must have at most {NAME_CHARS_MAX} characters")
    return window, order, normal_form(name)


async def _load(view: View) -> Mapping[str, Any]:
    window, order, name = _asked(view)
    async with list_slot(view.call):
        everyone = await view.context.figures.of_tenants(visible_tenants(view.call, None), window)
    total = sum(one.ended for one in everyone)
    found = [one for one in everyone if name in one.tenant_id]
    found.sort(key=lambda one: (ORDERS[order][1](one), one.tenant_id))
    return {
        "tenants": [(one, _share(one, total)) for one in found[:SHOWN_MAX]],
        "more": max(0, len(found) - SHOWN_MAX),
        "window": window,
        "since": iso(view.context.figures.since(window)),
        "is_filtered": bool(name),
    }


def _share(one: TenantFigures, total: int) -> int:
    """Of all that ended, in per cent."""
    return round(100 * one.ended / total) if total else 0


async def _frame(view: View) -> Mapping[str, Any]:
    window, order, _ = _asked(view)
    return {
        "windows": tuple(WINDOWS), "window": window, "order": order, "name": view.query.get("name", ""),
        "orders": [(one, words) for one, (words, _) in ORDERS.items()],
    }  # fmt: skip


PAGE = Page(
    path="/tenants",
    title="Tenants",
    section="tenants",
    template="tenants.html",
    load=_frame,
    pieces=(
        Piece(
            name="tenants", template="tenants_list.html", load=_load, follows=lambda view: ("jobs",),
            every_seconds=5, holds_still=True,
        ),
    ),
)  # fmt: skip
