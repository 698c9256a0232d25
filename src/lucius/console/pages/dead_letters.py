"""Dead letters by reason, and redriving a cohort of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lucius.api.figures import service_of, visible_tenants
from lucius.api.lists import list_slot
from lucius.console.page import Page, Piece, View

LETTERS_SHOWN = 50


async def _groups(view: View) -> Mapping[str, Any]:
    async with list_slot(view.call):
        found = await view.context.figures.failures(visible_tenants(view.call, None), None, dead_letters=True)
    return {"found": found, "service_of": partial(service_of, view.call)}


async def _messages(view: View) -> Mapping[str, Any]:
    letters = await view.context.bus.dead_letters(LETTERS_SHOWN)
    return {"letters": letters, "about": await view.context.describe_dead_letters(letters)}


def _jobs(view: View) -> tuple[str, ...]:
    return ("jobs",)


def _jobs_and_batches(view: View) -> tuple[str, ...]:
    return ("jobs", "batches")


PAGE = Page(
    path="/dead-letters",
    title="Dead letters",
    section="dead-letters",
    template="dead_letters.html",
    pieces=(
        Piece(name="groups", template="dead_letters_groups.html", load=_groups, follows=_jobs, holds_still=True),
        Piece(
            name="messages",
            template="dead_letters_messages.html",
            load=_messages,
            follows=_jobs_and_batches,
            for_all_tenants=True,
        ),
    ),
)
