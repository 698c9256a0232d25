"""Runbooks: the list, and one runbook with its versions, its plan, its source and what people did with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from lucius.api.runbook_requests import runbook_name
from lucius.console.page import Page, Piece, View
from lucius.console.pages.batch_address import number_in
from lucius.console.plan_chart import plan_chart
from lucius.domain.time import from_datetime, read_moment
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.core.records import HELD
from lucius.runbooks.rehearsal.plan import BatchPlan, plan_batch
from lucius.runbooks.rehearsal.service import MEMBERS_MAX
from lucius.runbooks.rehearsal.windows import usual_start

EVENTS_SHOWN = 15
BATCHES_SHOWN = 10
NOTICES = {
    "published": "The text is the active version now.",
    "same": "The active version has this text already: nothing was changed.",
    "stopped": "Automation is stopped: the source is not read, and no phase begins by itself.",
    "started": "Automation is on again.",
    "retired": "The runbook is retired: no new batches; those under way go on.",
    "confirmed": "The source is confirmed: its next reading may remove the missing members.",
}


def name_of(view: View) -> str:
    return runbook_name(view.call)


async def _list(view: View) -> Mapping[str, Any]:
    return {"runbooks": await view.context.runbooks.publishing.names(view.runbook_scope), "held": HELD}


async def _list_frame(view: View) -> Mapping[str, Any]:
    return {"may_publish": view.visitor.may("admin")}


async def _frame(view: View) -> Mapping[str, Any]:
    """Everything that depends on the version that is looked at, and on whether the visitor is an administrator."""
    name, query = name_of(view), view.query
    version, before = number_in(query, "version"), number_in(query, "compare")
    shown = await view.context.runbooks.queries.runbook(name, version)
    publishing = view.context.runbooks.publishing
    differences = None if before is None else await publishing.compare(name, before, shown["version"])
    runbook: Runbook = await asyncio.to_thread(read_runbook, shown["yaml"].encode())
    plan = planned(view, runbook)
    return {
        "title": f"Runbook {name}", "runbook": shown, "differences": differences, "compared": before, "plan": plan,
        "chart": plan_chart(plan), "definition": runbook, "may_publish": view.visitor.may("admin"),
        "may_operate": view.visitor.may("operate"), "members_max": MEMBERS_MAX,
    }  # fmt: skip


def planned(view: View, runbook: Runbook) -> BatchPlan:
    """Of one member: how long each phase takes at worst."""
    now = view.context.clock.now()
    return plan_batch(runbook, usual_start(runbook, now), 1, now)


async def _state(view: View) -> Mapping[str, Any]:
    name = name_of(view)
    runbooks = view.context.runbooks
    shown = await runbooks.queries.runbook(name, None)
    runbook: Runbook = await asyncio.to_thread(read_runbook, shown["yaml"].encode())
    found, _ = await runbooks.queries.batches(name, None, BATCHES_SHOWN, None)
    return {
        "runbook": shown, "batches": found, "held": HELD, "has_source": runbook.source is not None,
        "rehearsals": await runbooks.rehearsals.newest(name),
    }  # fmt: skip


async def _trail(view: View) -> Mapping[str, Any]:
    events, _ = await view.context.runbooks.queries.runbook_events(name_of(view), EVENTS_SHOWN, None)
    # Details are JSON already; encoding and decoding also shows those that could not be read.
    return {"events": [(event, msgspec.json.decode(msgspec.json.encode(event["detail"]))) for event in events]}


# --- One rehearsal ---------------------------------------------------------------------------------------------------


async def _rehearsal(view: View) -> Mapping[str, Any]:
    name = name_of(view)
    found = await view.context.runbooks.rehearsals.get(name, view.request.path_params["rehearsal_id"])
    report: Any = found["report"]
    return {"title": f"Rehearsal of {name}", "rehearsal": found, "report": report, "seconds_between": seconds_between}


def seconds_between(first: str | None, last: str | None) -> float | None:
    if first is None or last is None:
        return None
    return (from_datetime(read_moment(last)) - from_datetime(read_moment(first))) / 1000


def _runbooks(view: View) -> tuple[str, ...]:
    return ("runbooks", "batches")


PAGES = (
    Page(
        path="/runbooks", title="Runbooks", section="runbooks", template="runbooks.html", load=_list_frame,
        pieces=(
            Piece(
                name="list", template="runbooks_list.html", load=_list, follows=_runbooks, holds_still=True,
                seconds_min=0.4, every_seconds=10,
            ),
        ),
    ),
    Page(
        path="/runbooks/{name}", title="Runbook", section="runbooks", template="runbook.html", load=_frame,
        notices=NOTICES,
        pieces=(
            Piece(
                name="state", template="runbook_state.html", load=_state, follows=_runbooks, holds_still=True,
                seconds_min=0.4, every_seconds=10,
            ),
            Piece(name="trail", template="batch_trail.html", load=_trail, follows=_runbooks, seconds_min=0.4),
        ),
    ),
    Page(
        path="/runbooks/{name}/rehearsals/{rehearsal_id}", title="Rehearsal", section="runbooks",
        template="rehearsal.html", load=_rehearsal,
    ),
)  # fmt: skip
