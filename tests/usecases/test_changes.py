"""Who is told of a change, and when."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from lucius.console.pieces import Pieces
from lucius.usecases.changes import EVERY_TENANT, Changes


def sees_all(tenant_id: str) -> bool:
    return True


def sees_acme(tenant_id: str) -> bool:
    return tenant_id == "acme"


async def test_changes_reach_only_those_who_follow_the_name_and_see_the_tenant() -> None:
    changes = Changes()
    with (
        changes.following(frozenset({"jobs"}), sees_acme) as acme,
        changes.following(frozenset({"jobs", "operations"}), sees_all) as everything,
    ):
        changes.note("jobs", {"globex"})
        changes.note("operations", EVERY_TENANT)
        assert await everything.next(1.0) == ["jobs", "operations"]
        assert await acme.next(0.01) == []
        changes.note("jobs", {"globex", "acme"})
        assert await acme.next(1.0) == ["jobs"]
        changes.note_all()
        assert await acme.next(1.0) == ["jobs"]
    changes.note("jobs", {"acme"})
    assert await acme.next(0.01) == []


async def test_changes_that_follow_each_other_come_together() -> None:
    changes = Changes()
    with changes.following(frozenset({"jobs", "operations"}), sees_all) as follower:
        changes.note("jobs", {"acme"})
        asyncio.get_running_loop().call_later(0.05, changes.note, "operations")
        assert await follower.next(1.0) == ["jobs", "operations"]


async def test_piece_is_rendered_once_per_change_whoever_asks() -> None:
    changes, now = Changes(), [0.0]
    pieces = Pieces(changes, lambda: now[0])
    rendered = 0

    async def render() -> str:
        nonlocal rendered
        rendered += 1
        mine = rendered
        await asyncio.sleep(0.01)
        return f"rendering {mine}"

    async def ask(scope: str = "all") -> str:
        return await pieces.get(("list", scope), ("jobs",), 5.0, render)

    assert await asyncio.gather(*(ask() for _ in range(50))) == ["rendering 1"] * 50
    assert await ask() == "rendering 1"
    assert await ask("acme") == "rendering 2"
    changes.note("jobs", {"acme"})
    assert await ask() == "rendering 3"
    now[0] = 6.0
    assert await ask() == "rendering 4"


async def test_renderings_of_costly_pieces_begin_apart_and_show_every_change() -> None:
    changes = Changes()
    pieces = Pieces(changes)
    begun: list[float] = []

    async def render() -> str:
        begun.append(asyncio.get_running_loop().time())
        return str(changes.last(("jobs",)))

    async def ask() -> int:
        """How many of the changes until now are missing in what is shown."""
        happened = changes.last(("jobs",))
        return happened - int(await pieces.get("list", ("jobs",), 5.0, render, 0.2))

    assert await ask() == 0
    waiting = []
    for _ in range(10):
        changes.note("jobs")
        waiting.append(asyncio.create_task(ask()))
        await asyncio.sleep(0.001)
    assert max(await asyncio.gather(*waiting)) <= 0
    assert 2 <= len(begun) < 6, "on a busy machine, more than one may begin"
    assert all(after - before > 0.19 for before, after in pairwise(begun))


async def test_rendering_that_fails_is_not_kept() -> None:
    pieces = Pieces(Changes())

    async def fail() -> str:
        raise ValueError("no ledger")

    async def render() -> str:
        return "there"

    for _ in range(2):
        with pytest.raises(ValueError, match="no ledger"):
            await pieces.get("list", (), 5.0, fail)
    assert await pieces.get("list", (), 5.0, render) == "there"
