"""What is sent together, and what does not wait for what."""

from __future__ import annotations

import asyncio

from lucius.kit.spool import Spool

SECONDS_MAX = 10.0


class Sent:
    """The batches in the order in which they left. A batch with `hangs_on` in it is not answered until `let_go`."""

    def __init__(self, hangs_on: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self.let_go = asyncio.Event()
        self._hangs_on = hangs_on
        self._changed = asyncio.Event()

    async def send(self, batch: list[int]) -> float:
        self.batches.append(batch)
        self._changed.set()
        if self._hangs_on in batch:
            await self.let_go.wait()
        else:
            await asyncio.sleep(0)
        return 0.0

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.batches) < count:
                self._changed.clear()
                await self._changed.wait()


async def emptied(spool: Spool[int]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await spool.emptied()


async def test_what_arrives_during_a_call_is_sent_together_after_it() -> None:
    sent = Sent(hangs_on=1)
    spool = Spool(sent.send, batch_max=10, calls_max=4)
    async with spool.running():
        spool.add(1)
        await sent.until(1)
        for number in (2, 3, 4):
            spool.add(number)
            await asyncio.sleep(0)
        sent.let_go.set()
        await emptied(spool)
    assert sent.batches == [[1], [2, 3, 4]]


async def test_a_call_that_hangs_delays_the_others_only_for_a_moment() -> None:
    sent = Sent(hangs_on=1)
    spool = Spool(sent.send, batch_max=10, calls_max=2)
    async with spool.running():
        spool.add(1)
        await sent.until(1)
        for number in (2, 3, 4):
            spool.add(number)
            await sent.until(number)
        assert not sent.let_go.is_set()
        sent.let_go.set()
        await emptied(spool)
    assert sent.batches == [[1], [2], [3], [4]]


async def test_a_whole_batch_and_its_rest_wait_for_nobody() -> None:
    sent = Sent(hangs_on=1)
    spool = Spool(sent.send, batch_max=2, calls_max=2)
    async with spool.running():
        spool.add(1)
        await sent.until(1)
        for number in (2, 3, 4, 5, 6):
            spool.add(number)
        await sent.until(4)
        assert not sent.let_go.is_set()
        sent.let_go.set()
        await emptied(spool)
    assert sent.batches == [[1], [2, 3], [4, 5], [6]]
