"""A URL that names several PostgreSQL servers, taken apart."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from lucius.sql.postgres_hosts import Hosts, one_url_per_host


@pytest.mark.parametrize(
    ("url", "apart"),
    [
        ("postgresql://u:p@a/db", ["postgresql://u:p@a/db"]),
        ("postgresql://u:p@a:1,b:2/db?x=y", ["postgresql://u:p@a:1/db?x=y", "postgresql://u:p@b:2/db?x=y"]),
        ("postgresql://u@[::1]:1,[::2]/db", ["postgresql://u@[::1]:1/db", "postgresql://u@[::2]/db"]),
        ("postgresql://u:a%2Cb@c/db", ["postgresql://u:a%2Cb@c/db"]),
        ("postgresql:///db?host=/tmp&port=1", ["postgresql:///db?host=/tmp&port=1"]),
        ("postgresql:///db?host=a,b&port=1,2", ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=2"]),
        ("postgresql:///db?host=a,b&port=1", ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=1"]),
        ("postgresql:///db?host=a,b", ["postgresql:///db?host=a", "postgresql:///db?host=b"]),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, apart: list[str]) -> None:
    assert one_url_per_host(url) == apart


class Connected:
    is_terminated = False

    def terminate(self) -> None:
        self.is_terminated = True


@pytest.mark.parametrize("fails", [False, True])
async def test_connecting_is_never_cancelled_halfway(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """asyncpg would leave a future behind; whoever does not wait any more gets no connection either."""
    begun, may_go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    connection = Connected()

    async def connect(url: str, **options: Any) -> Connected:
        begun.set()
        await may_go_on.wait()
        ended.set()
        if fails:
            raise OSError("nobody is there")
        return connection

    monkeypatch.setattr(asyncpg, "connect", connect)
    waiting = asyncio.create_task(Hosts("postgresql://a/db").connect())
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_go_on.set()
    async with asyncio.timeout(5):
        await ended.wait()
        while not (fails or connection.is_terminated):
            await asyncio.sleep(0)
