"""Followers of the same thing share what they read, and nobody gets what was read before it asked."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lucius.usecases.shared_reads import SharedReads


class Reader:
    def __init__(self) -> None:
        self.reads = 0
        self.at_once = 0

    async def read(self) -> int:
        self.reads += 1
        number = self.reads
        self.at_once += 1
        assert self.at_once == 1
        await asyncio.sleep(0.002)
        self.at_once -= 1
        return number


async def _many(shared: SharedReads, reader: Reader, count: int, what: int = 0) -> list[Any]:
    async def one() -> int:
        with shared.following("job") as followed:
            return await followed.read("events", what, time.monotonic(), reader.read)

    return await asyncio.gather(*(one() for _ in range(count)))


async def test_a_hundred_followers_who_ask_at_once_cost_two_reads() -> None:
    shared, reader = SharedReads(), Reader()
    found = await _many(shared, reader, 100)
    assert reader.reads == 2, "the second began after all others had asked"
    assert found == [1, *[2] * 99]


async def test_what_was_read_before_somebody_asked_is_not_for_them() -> None:
    shared, reader = SharedReads(), Reader()
    with shared.following("job") as followed:
        early = time.monotonic()
        assert await followed.read("events", 0, early, reader.read) == 1
        assert await followed.read("events", 0, early, reader.read) == 1
        assert await followed.read("events", 0, time.monotonic(), reader.read) == 2


async def test_other_questions_get_other_answers() -> None:
    shared, reader = SharedReads(), Reader()
    since = time.monotonic()
    with shared.following("job") as followed, shared.following("another") as other:
        assert await followed.read("events", 0, since, reader.read) == 1
        assert await followed.read("events", 7, since, reader.read) == 2
        assert await followed.read("job", 7, since, reader.read) == 3
        assert await other.read("events", 7, since, reader.read) == 4


async def test_nothing_is_kept_of_what_nobody_follows() -> None:
    shared, reader = SharedReads(), Reader()
    since = time.monotonic()
    for number in (1, 2):
        with shared.following("job") as followed:
            assert await followed.read("events", 0, since, reader.read) == number


async def test_a_failure_is_shared_by_all_who_had_asked_and_the_next_reads_again() -> None:
    shared, reader = SharedReads(), Reader()
    tries = 0

    async def failing() -> int:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.002)
        raise OSError("the database hangs")

    with shared.following("job") as followed:
        asked = [followed.read("job", 0, time.monotonic(), failing) for _ in range(50)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(error, OSError) for error in found)
        assert tries <= 2
        assert await followed.read("job", 0, time.monotonic(), reader.read) == 1


async def test_who_gives_up_while_reading_leaves_the_turn_to_the_next() -> None:
    shared, reader = SharedReads(), Reader()
    with shared.following("job") as followed:

        async def forever() -> int:
            await asyncio.Event().wait()
            return 0

        first = asyncio.create_task(followed.read("job", 0, time.monotonic(), forever))
        second = asyncio.create_task(followed.read("job", 0, time.monotonic(), reader.read))
        await asyncio.sleep(0.01)
        assert not second.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == 1
