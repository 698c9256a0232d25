"""Lanes and services: what waits where, how old it is, who takes it, and which tenants share a lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lucius.api.admin import show_lanes
from lucius.api.admin_answers import Lane, LaneSubscription
from lucius.console.page import Page, Piece, View
from lucius.console.scope import require_all_tenants

ALL = "all"


class ServiceLine(Struct):
    """One service, all its lanes together."""

    service: str
    ready: int = 0
    locked: int = 0
    unsent: int = 0
    held: int = 0
    redelivered: int = 0
    dead: int = 0
    consumers: int = 0
    oldest_at: str | None = None
    last_asked_at: str | None = None
    note: str | None = None


async def _load(view: View) -> Mapping[str, Any]:
    require_all_tenants(view, "lanes")
    lanes = await show_lanes(view.context)
    shown = lanes if view.query.get(ALL) == "1" else [lane for lane in lanes if not _is_empty(lane)]
    return {"services": _services(lanes), "lanes": shown, "empty": len(lanes) - len(shown)}


def _services(lanes: list[Lane]) -> list[ServiceLine]:
    found: dict[str, ServiceLine] = {}
    for lane in lanes:
        for one in lane["subscriptions"]:
            line = found.setdefault(one["service"], ServiceLine(one["service"]))
            _add(line, one)
    return sorted(found.values(), key=lambda line: (-line.ready - line.unsent, line.service))


def _add(line: ServiceLine, one: LaneSubscription) -> None:
    line.ready += one["ready"]
    line.locked += one["locked"]
    line.unsent += one["unsent"]
    line.held += one["held"]
    line.redelivered += one["redelivered"]
    line.dead += one["dead"]
    line.consumers, line.last_asked_at = one["consumers"], one["last_asked_at"]
    line.note = line.note or one["note"]
    moments = [moment for moment in (line.oldest_at, one["oldest_at"], one["oldest_unsent_at"]) if moment]
    line.oldest_at = min(moments, default=None)


def _is_empty(lane: Lane) -> bool:
    counts = [one["ready"] + one["locked"] + one["unsent"] + one["dead"] for one in lane["subscriptions"]]
    return not any(counts) and not lane["tenant_count"]


async def _frame(view: View) -> Mapping[str, Any]:
    require_all_tenants(view, "lanes")
    return {}


PAGE = Page(
    path="/lanes",
    title="Lanes and services",
    section="lanes",
    template="lanes.html",
    load=_frame,
    pieces=(
        Piece(
            name="lanes", template="lanes_list.html", load=_load, follows=lambda view: ("jobs", "workers"),
            seconds_max=2, every_seconds=5, holds_still=True,
        ),
    ),
)  # fmt: skip
