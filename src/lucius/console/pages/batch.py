"""A batch: its phases, its grid of members × steps, who is behind, and what can be done about it."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from lucius.api import batches as api
from lucius.console.forecast import compare_phases
from lucius.console.page import Download, Page, Piece, View
from lucius.console.pages.batch_address import batch_id
from lucius.console.phase_chart import axis_of, ends, phase_chart
from lucius.runbooks.core.answers import BatchWhole, Rehearsal
from lucius.runbooks.core.grid import CELLS, MEANINGS
from lucius.runbooks.core.records import HELD
from lucius.runbooks.core.states import BATCH_ENDED, STEP
from lucius.runbooks.service.views.members import MEMBER_FILTERS

LARGE_MEMBERS = 2_000
"""Reading the figures of a batch with more members takes so long that they are read only every few seconds."""
LARGE_SECONDS = 5.0
EVENTS_SHOWN = 15
BAR_ORDER = ("succeeded", "polling", "dispatched", "pending", "failed", "poll_timeout", "rolled_back", "cancelled")


async def _load(view: View) -> Mapping[str, Any]:
    batch, now = await _batch(view), view.context.clock.now()
    source = batch["source"]
    return {
        "batch": batch,
        "chart": phase_chart(batch, now),
        "axis": ends(axis_of(batch, now)),
        "has_ended": batch["status"] in BATCH_ENDED,
        "source_is_held": source is not None and source["state"] == HELD,
    }


async def _figures(view: View) -> Mapping[str, Any]:
    return {"batch": await _batch(view), "bar_order": BAR_ORDER, "cells": CELLS, "filters": MEMBER_FILTERS}


async def _batch(view: View) -> BatchWhole:
    """Read once for both pieces of a page: every step is counted for it."""
    state = view.request.state
    if not hasattr(state, "batch"):
        state.batch = await view.context.runbooks.queries.batch(batch_id(view))
    found: BatchWhole = state.batch
    return found


async def _forecast(view: View) -> Mapping[str, Any]:
    """The newest rehearsal of the same version, moved to this batch's start, beside what happened."""
    batch = await _batch(view)
    made = await view.context.runbooks.rehearsals.newest(batch["runbook"])
    rehearsal = next((one for one in made if one["version"] == batch["version"] and _expected(one)), None)
    return {"rehearsal": rehearsal, "lines": [] if rehearsal is None else compare_phases(batch, _expected(rehearsal))}


def _expected(rehearsal: Rehearsal) -> Any:
    """The first batch of its report, if it has one."""
    return next(iter(rehearsal["report"].get("batches", ())), None)


async def _trail(view: View) -> Mapping[str, Any]:
    events, _ = await view.context.runbooks.queries.batch_events(batch_id(view), EVENTS_SHOWN, None)
    # Details are JSON already; encoding and decoding also shows those that could not be read.
    return {"events": [(event, msgspec.json.decode(msgspec.json.encode(event["detail"]))) for event in events]}


async def number_stamp(view: View) -> Hashable:
    return (await view.context.runbooks.queries.change_number(batch_id(view)))[0]


async def _stamp(view: View) -> Hashable:
    number, members = await view.context.runbooks.queries.change_number(batch_id(view))
    return int(time.monotonic() / LARGE_SECONDS) if members > LARGE_MEMBERS else number


async def _frame(view: View) -> Mapping[str, Any]:
    number = batch_id(view)
    await view.context.runbooks.queries.change_number(number)
    meanings = [(cell, words) for cell, words in MEANINGS.items()]
    return {"title": f"Batch {number}", "number": number, "meanings": meanings, "statuses": tuple(STEP)}


def follows(view: View) -> tuple[str, ...]:
    return (f"batch:{batch_id(view)}",)


async def _grid(view: View) -> Response:
    return await api.grid(view.call)


async def _export(view: View) -> Response:
    return await api.export(view.call)


PAGE = Page(
    path="/batches/{batch_id}",
    title="Batch",
    section="batches",
    template="batch.html",
    load=_frame,
    pieces=(
        Piece(
            name="state", template="batch_state.html", load=_load, follows=follows, stamp=_stamp,
            seconds_max=LARGE_SECONDS, every_seconds=LARGE_SECONDS, holds_still=True,
        ),
        Piece(
            name="figures", template="batch_figures.html", load=_figures, follows=follows, stamp=_stamp,
            seconds_max=LARGE_SECONDS, every_seconds=LARGE_SECONDS, holds_still=True,
        ),
        Piece(
            name="forecast", template="batch_forecast.html", load=_forecast, follows=follows, stamp=_stamp,
            seconds_max=LARGE_SECONDS,
        ),
        Piece(
            name="trail", template="batch_trail.html", load=_trail, follows=follows, stamp=_stamp,
            seconds_max=LARGE_SECONDS,
        ),
    ),
    notices={
        "retried": "The failed members are retried.",
        "removed": "The members were removed.",
        "added": "The members were added; they catch up.",
        "cancelled": "The batch is cancelled. Jobs that workers hold may still finish.",
        "paused": "The batch is paused: nothing new is sent. What workers have begun goes on.",
        "resumed": "The batch continues.",
        "rescheduled": "The phases that have not begun are moved.",
        "advanced": "The next phase begins.",
        "approved": "The phase is approved. It begins when it is due and has all its approvals.",
        "refused": "The phase is refused: neither it nor a later one begins.",
        "confirmed": "The source is confirmed: its next reading may remove the missing members.",
        "moved": "The held members leave this batch for their new date.",
        "kept": "The held members stay in this batch and go on.",
    },
)  # fmt: skip
DOWNLOADS = (
    Download(path="/batches/{batch_id}/grid", run=_grid),
    Download(path="/batches/{batch_id}/export", run=_export),
)
