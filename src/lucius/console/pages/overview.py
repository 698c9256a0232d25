"""The overview: what is wrong, what waits and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucius.api.figures import visible_tenants
from lucius.console.causes import CAUSES
from lucius.console.page import Page, Piece, View
from lucius.domain.job import JobStatus
from lucius.domain.routing import LANE_COUNT
from lucius.domain.time import iso
from lucius.usecases.figures import WINDOWS
from lucius.usecases.lane_history import MINUTES

TENANTS_SHOWN = 8
GROUPS_SHOWN = 10
HEAT_STEPS = (0.0, 10.0, 60.0, 300.0, 1_800.0)
"""Seconds from which on a cell of the heat map is a step darker."""


async def _counts(view: View) -> Mapping[str, Any]:
    counts = await view.context.figures.counts(visible_tenants(view.call, None))
    rows = [
        (name, view.address("/jobs", created_from=iso(view.context.figures.since(name))), counts[name])
        for name in WINDOWS
    ]
    return {"rows": rows, "statuses": JobStatus}


async def _now(view: View) -> Mapping[str, Any]:
    figures, tenants = view.context.figures, visible_tenants(view.call, None)
    waiting = await figures.waiting(tenants)
    return {
        "waiting": [(cause, *CAUSES[cause], waiting.get(cause, 0)) for cause in CAUSES],
        "total": sum(waiting.values()),
    }


async def _inflight(view: View) -> Mapping[str, Any]:
    inflight = await view.context.figures.inflight(visible_tenants(view.call, None))
    return {"inflight": inflight[: TENANTS_SHOWN + 1], "more": max(0, len(inflight) - TENANTS_SHOWN - 1)}


async def _failures(view: View) -> Mapping[str, Any]:
    figures = view.context.figures
    found = await figures.failures(visible_tenants(view.call, None), figures.since("day"), dead_letters=False)
    return {"groups": found.groups[:GROUPS_SHOWN], "found": found, "more": len(found.groups) - GROUPS_SHOWN}


async def _lanes(view: View) -> Mapping[str, Any]:
    history = view.context.lane_history
    first = history.minute - MINUTES + 1
    samples = {sample.minute - first: sample.oldest_seconds for sample in await history.samples()}
    cells = [
        (column, lane, _heat(age), age) for column, ages in samples.items() for lane, age in enumerate(ages) if age
    ]
    newest = samples[max(samples)] if samples else ()
    return {
        "cells": cells,
        "lanes": LANE_COUNT,
        "minutes": MINUTES,
        "unknown": [column for column in range(MINUTES) if column not in samples],
        "waiting": [(lane, age) for lane, age in enumerate(newest) if age],
    }


def _heat(age: float) -> int:
    return sum(age >= step for step in HEAT_STEPS)


async def _parts(view: View) -> Mapping[str, Any]:
    report = await view.context.management.readiness.look()
    return {"report": report}


def _jobs(view: View) -> tuple[str, ...]:
    return ("jobs",)


def _nothing(view: View) -> tuple[str, ...]:
    return ()


PAGE = Page(
    path="/",
    title="Overview",
    section="overview",
    template="overview.html",
    pieces=(
        Piece(
            name="parts", template="overview_parts.html", load=_parts, follows=_nothing, for_all_tenants=True,
            every_seconds=10,
        ),
        Piece(name="now", template="overview_now.html", load=_now, follows=_jobs),
        Piece(
            name="inflight", template="overview_inflight.html", load=_inflight, follows=_jobs, holds_still=True,
        ),
        Piece(name="counts", template="overview_counts.html", load=_counts, follows=_jobs),
        Piece(name="failures", template="overview_failures.html", load=_failures, follows=_jobs, holds_still=True),
        Piece(
            name="lanes", template="overview_lanes.html", load=_lanes, follows=_nothing, for_all_tenants=True,
            every_seconds=30,
        ),
    ),
)  # fmt: skip
