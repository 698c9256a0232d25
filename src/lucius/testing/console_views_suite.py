"""Conformance suite for stores of saved views. Provide a fixture `views`, an open and empty store."""

from __future__ import annotations

import asyncio

from lucius.ports.console_views import ConsoleViews, SavedView
from lucius.testing.samples import START

SAVED_AT_ONCE = 8
ANN, BOB = "ab" * 32, "cd" * 32


class ConsoleViewsSuite:
    async def test_views_belong_to_their_owner_and_page_and_have_a_limit(self, views: ConsoleViews) -> None:
        async def save(owner: str, page: str, name: str, query: str = "") -> bool:
            return await views.save(owner, page, SavedView(name=name, query=query, created_at=START), 2)

        async def kept(owner: str, page: str) -> list[tuple[str, str]]:
            return [(view.name, view.query) for view in await views.all(owner, page)]

        assert await save(ANN, "jobs", "b")
        assert await save(ANN, "jobs", "a / # ?")
        assert not await save(ANN, "jobs", "c")
        assert await save(ANN, "jobs", "b", "status=QUEUED")
        assert await save(ANN, "batches", "c")
        assert await save(BOB, "jobs", "b")
        await views.remove(BOB, "jobs", "a / # ?")
        assert await kept(ANN, "jobs") == [("a / # ?", ""), ("b", "status=QUEUED")]
        await views.remove(ANN, "jobs", "b")
        assert await kept(ANN, "jobs") == [("a / # ?", "")]
        assert await kept(BOB, "jobs") == [("b", "")]

    async def test_views_saved_at_the_same_moment_keep_to_the_limit(self, views: ConsoleViews) -> None:
        made = [SavedView(name=f"view {number}", query="", created_at=START) for number in range(SAVED_AT_ONCE)]
        saved = await asyncio.gather(*(views.save(ANN, "jobs", view, 3) for view in made))
        kept = [view.name for view in await views.all(ANN, "jobs")]
        assert kept == [view.name for view, was_saved in zip(made, saved, strict=True) if was_saved]
        assert len(kept) == 3
