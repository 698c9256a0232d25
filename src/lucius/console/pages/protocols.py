"""Protocols: versions and the jobs under way in each, steps with their policies and schemas, and how long they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from lucius.api.admin import find_protocol, protocol_figures, show_protocol
from lucius.api.figures import visible_tenants
from lucius.api.lists import list_slot
from lucius.console.page import Page, Piece, View
from lucius.domain.protocol import Policy


async def _list(view: View) -> Mapping[str, Any]:
    snapshot = view.context.registry.snapshot()
    async with list_slot(view.call):
        found = await view.context.figures.open_jobs(visible_tenants(view.call, None))
    open_jobs: Counter[str] = Counter()
    older: Counter[str] = Counter()
    for group in found.groups:
        open_jobs[group.protocol_id] += group.jobs
        known = snapshot.protocols.get(group.protocol_id)
        if known is None or known.version != group.protocol_version:
            older[group.protocol_id] += group.jobs
    gone = sorted(set(open_jobs) - set(snapshot.protocols))
    return {
        "protocols": [snapshot.protocols[name] for name in sorted(snapshot.protocols)],
        "open_jobs": open_jobs,
        "older": older,
        "gone": gone,
        "found": found,
    }


async def _frame(view: View) -> Mapping[str, Any]:
    protocol = find_protocol(view.call)
    shown = show_protocol(protocol, view.context.registry.snapshot().settings)
    return {
        "title": f"Protocol {protocol.id}",
        "protocol": shown,
        "policy_names": Policy.__struct_fields__,
        "schemas": {step["stepId"]: _json(step["payload_schema"]) for step in shown["steps"]},
    }


async def _figures(view: View) -> Mapping[str, Any]:
    protocol = find_protocol(view.call)
    async with list_slot(view.call):
        found = await protocol_figures(view.call, protocol)
    of_step = {one["stepId"]: one for one in found["steps"]}
    longest = max((one["p95_seconds"] for one in found["steps"]), default=0.0)
    return {"figures": found, "of_step": of_step, "protocol": protocol, "longest": longest}


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _jobs(view: View) -> tuple[str, ...]:
    return ("jobs",)


PAGES = (
    Page(
        path="/protocols", title="Protocols", section="protocols", template="protocols.html",
        pieces=(
            Piece(
                name="list", template="protocols_list.html", load=_list, follows=_jobs,
                holds_still=True,
            ),
        ),
    ),
    Page(
        path="/protocols/{protocol_id}", title="Protocol", section="protocols", template="protocol.html", load=_frame,
        pieces=(
            Piece(
                name="figures", template="protocol_figures.html", load=_figures, follows=_jobs, seconds_min=0.6,
            ),
        ),
    ),
)  # fmt: skip
