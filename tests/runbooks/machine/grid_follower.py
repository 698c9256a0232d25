"""Somebody who has the grid of a batch open: takes it whole once, and from then on what has changed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from lucius.runbooks.core.grid import NO_STEP
from lucius.runbooks.service.queries import Queries


class GridFollower:
    def __init__(self, queries: Queries, batch_id: int) -> None:
        self._queries = queries
        self._batch_id = batch_id
        self.number = 0
        self.wholes = 0
        self.changes = 0
        """Answers with changes alone, that had any."""
        self.cells: dict[tuple[int, int], str] = {}
        self.members: dict[int, tuple[str, str]] = {}
        self.columns: list[Any] = []

    async def look(self) -> None:
        answer = await self._queries.grid(self._batch_id, self.number or None)
        assert answer["number"] >= self.number
        self.number = answer["number"]
        named = zip(answer["member_ids"], answer["member_keys"], answer["member_states"], strict=True)
        if answer["whole"]:
            self.wholes += 1
            self.members, self.cells, self.columns = {}, _placed(answer), list(answer["columns"])
        else:
            self.changes += bool(answer["cells"])
            places = zip(answer["cell_members"], answer["cell_columns"], strict=True)
            self.cells |= dict(zip(places, answer["cells"], strict=True))
        self.members |= {number: (key, state) for number, key, state in named}

    async def look_on(self) -> None:
        """While others work, until it is cancelled: a change that is committed late must not be missed."""
        with suppress(asyncio.CancelledError):
            while True:
                await self.look()
                await asyncio.sleep(0.002)

    async def compare(self) -> None:
        """What was put together from changes must be what is there."""
        await self.look()
        there = await self._queries.grid(self._batch_id, None)
        assert there["number"] == self.number
        assert there["columns"] == self.columns
        shown = {place: cell for place, cell in self.cells.items() if cell != NO_STEP}
        assert shown == {place: cell for place, cell in _placed(there).items() if cell != NO_STEP}
        assert {number: state for number, (_, state) in self.members.items()} == dict(
            zip(there["member_ids"], there["member_states"], strict=True)
        )


def _placed(answer: Any) -> dict[tuple[int, int], str]:
    width = len(answer["columns"])
    assert len(answer["cells"]) == width * len(answer["member_ids"])
    return {
        (member_id, column): answer["cells"][row * width + column]
        for row, member_id in enumerate(answer["member_ids"])
        for column in range(width)
    }
