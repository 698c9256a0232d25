"""The overview: what is wrong, what waits and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucius.console.page import Page, Piece, View


async def _load(view: View) -> Mapping[str, Any]:
    return {"inflight": await view.context.ledger.inflight()}


PAGE = Page(
    path="/",
    title="Overview",
    section="overview",
    template="overview.html",
    pieces=(Piece(name="figures", template="overview_figures.html", load=_load, follows=lambda view: ("jobs",)),),
)
