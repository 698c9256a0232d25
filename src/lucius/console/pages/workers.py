"""Workers: which instances of services and function workers have asked for work, and how they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucius.api.sightings import show_workers
from lucius.console.page import Page, Piece, View
from lucius.console.scope import require_all_tenants
from lucius.usecases.sightings import ABSENT_SECONDS

SHOWN_MAX = 500
ABSENT = "absent"


async def _load(view: View) -> Mapping[str, Any]:
    require_all_tenants(view, "workers")
    workers = show_workers(view.context.sightings)
    present = [one for one in workers if one["present"]]
    shown = workers if view.query.get(ABSENT) == "1" else present
    return {
        "workers": sorted(shown, key=lambda one: (not one["present"], one["kind"], one["name"], one["instance"]))[
            :SHOWN_MAX
        ],
        "more": max(0, len(shown) - SHOWN_MAX),
        "present": len(present),
        "absent": len(workers) - len(present),
        "with_absent": shown is workers,
        "absent_seconds": int(ABSENT_SECONDS),
    }


async def _frame(view: View) -> Mapping[str, Any]:
    require_all_tenants(view, "workers")
    return {}


PAGE = Page(
    path="/workers",
    title="Workers",
    section="workers",
    template="workers.html",
    load=_frame,
    pieces=(
        Piece(
            name="workers", template="workers_list.html", load=_load, follows=lambda view: ("workers",), seconds_max=1,
            every_seconds=2, holds_still=True,
        ),
    ),
)  # fmt: skip
