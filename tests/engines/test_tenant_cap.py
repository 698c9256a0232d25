"""The cap's count: what is acknowledged elsewhere, and who may go first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from lucius.domain.job import OUTBOX, Job
from lucius.engines.tenant_cap import UNCOMMITTED_SECONDS, TenantCap
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.ledger import HeldLine
from lucius.ports.observer import Observer
from lucius.testing.ledger_driver import LedgerDriver, ack, published
from lucius.testing.samples import ManualClock

SECONDS_MAX = 10.0


@pytest.fixture
def driver(clock: ManualClock) -> LedgerDriver:
    return LedgerDriver(MemoryLedger(), clock)


async def make_cap(driver: LedgerDriver, maximum: int = 1) -> TenantCap:
    cap = TenantCap(driver.ledger, OUTBOX, maximum, look_seconds=0.05)
    await cap.count()
    return cap


async def create(driver: LedgerDriver, clock: ManualClock, cap: TenantCap, is_held: bool = False) -> Job:
    clock.is_holding_back = is_held
    job = await driver.create()
    cap.decided(job)
    cap.committed(job)
    return job


async def released_by(cap: TenantCap, count: int) -> list[str]:
    """The first so many jobs that it lets go."""
    found: list[str] = []
    is_enough = asyncio.Event()

    async def release(job_ids: list[str]) -> None:
        found.extend(job_ids)
        if len(found) >= count:
            is_enough.set()

    running = asyncio.create_task(cap.run(release, Observer()))
    try:
        await asyncio.wait_for(is_enough.wait(), SECONDS_MAX)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return found


async def test_ack_that_another_process_wrote_makes_room(driver: LedgerDriver, clock: ManualClock) -> None:
    cap = await make_cap(driver)
    first = await create(driver, clock, cap)
    held = await create(driver, clock, cap, is_held=True)
    await driver.tell(first, published(first), ack(first))
    assert await released_by(cap, 1) == [held.job_id]


class LedgerThatOthersWriteTo(MemoryLedger):
    def __init__(self) -> None:
        super().__init__()
        self.write: Callable[[], Awaitable[None]] | None = None

    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        if self.write is not None:
            await self.write()
        return await super().wait_causes(job_ids)


async def test_ledger_is_asked_often_while_others_get_the_acks(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two processes, half of what one has counted is acknowledged at the other. Asking ten times a second, a flood
    got no further than its share each time."""
    monkeypatch.setattr("lucius.engines.tenant_cap.RECOUNT_SECONDS", 600.0)
    ledger = LedgerThatOthersWriteTo()
    driver = LedgerDriver(ledger, clock)
    cap = await make_cap(driver, maximum=4)
    jobs = [await create(driver, clock, cap) for _ in range(4)]
    await create(driver, clock, cap, is_held=True)
    await asyncio.sleep(UNCOMMITTED_SECONDS)
    left = list(jobs)

    async def acknowledge_one() -> None:
        if left:
            job = left.pop()
            await driver.tell(job, published(job), ack(job))

    ledger.write = acknowledge_one
    running = asyncio.create_task(cap.run(unexpected, Observer(), lambda: False))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while any(job.job_id in cap._counted_in for job in jobs):
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def unexpected(job_ids: list[str]) -> None:
    raise AssertionError(f"{job_ids} were released")


async def test_what_was_let_go_just_now_is_not_asked_about(driver: LedgerDriver, clock: ManualClock) -> None:
    """Its commit may be under way, and the ledger does not know it yet: it would be forgotten, and another let go."""
    cap = await make_cap(driver)
    job = await create(driver, clock, cap)
    cap._waiting.add(HeldLine(job.spec.tenant_id, job.spec.routing.lane, job.steps[0].spec.service))
    await driver.tell(job, published(job), ack(job))
    assert not await cap._recount(True)
    await asyncio.sleep(UNCOMMITTED_SECONDS)
    assert await cap._recount(True)


class SlowLedger(MemoryLedger):
    asked = 0

    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        self.asked += 1
        await asyncio.sleep(0.1)
        return await super().wait_causes(job_ids)


async def test_slow_ledger_is_asked_less_often(clock: ManualClock) -> None:
    ledger = SlowLedger()
    driver = LedgerDriver(ledger, clock)
    cap = await make_cap(driver)
    for is_held in (False, True):
        await create(driver, clock, cap, is_held)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(released_by(cap, 1), 0.9)
    assert ledger.asked == 1


async def test_what_another_process_holds_is_found(driver: LedgerDriver, clock: ManualClock) -> None:
    cap = await make_cap(driver)
    clock.is_holding_back = True
    held = await driver.create()
    assert await released_by(cap, 1) == [held.job_id]


async def test_nobody_overtakes_what_waits_though_there_is_room(driver: LedgerDriver, clock: ManualClock) -> None:
    cap = await make_cap(driver, maximum=3)
    await create(driver, clock, cap)
    held = await create(driver, clock, cap, is_held=True)
    newest = await driver.create()
    assert cap.holds_back(newest.spec, newest.steps[0].spec)
    assert (await released_by(cap, 2))[0] == held.job_id
    assert not cap.holds_back(newest.spec, newest.steps[0].spec)


async def test_no_more_is_released_than_there_is_room(driver: LedgerDriver, clock: ManualClock) -> None:
    cap = await make_cap(driver, maximum=3)
    for _ in range(2):
        await create(driver, clock, cap)
    held = [await create(driver, clock, cap, is_held=True) for _ in range(5)]
    assert await released_by(cap, 1) == [held[0].job_id]


async def test_nothing_is_released_while_there_are_too_many(driver: LedgerDriver, clock: ManualClock) -> None:
    """The cap may have been lowered since they were published."""
    cap = await make_cap(driver, maximum=1)
    for is_held in (False, False, False, True, True):
        await create(driver, clock, cap, is_held)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(released_by(cap, 1), 0.3)


async def test_nothing_is_published_before_the_count_is_taken(driver: LedgerDriver) -> None:
    cap = TenantCap(driver.ledger, OUTBOX, 1, look_seconds=0.05)
    job = await driver.create()
    assert cap.holds_back(job.spec, job.steps[0].spec)
    await cap.count()
    assert not cap.holds_back(job.spec, job.steps[0].spec), "it is counted itself"
    other = await driver.create()
    assert cap.holds_back(other.spec, other.steps[0].spec)


async def test_nothing_is_released_while_the_bus_takes_nothing(driver: LedgerDriver, clock: ManualClock) -> None:
    """What is released then is only held again, and the room that this makes was looked at all the time."""
    cap = await make_cap(driver, maximum=4)
    await create(driver, clock, cap, is_held=True)
    released: list[str] = []

    async def release(job_ids: list[str]) -> None:
        released.extend(job_ids)

    is_open = True
    running = asyncio.create_task(cap.run(release, Observer(), lambda: not is_open))
    await asyncio.sleep(0.2)
    assert not released
    is_open = False
    async with asyncio.timeout(SECONDS_MAX):
        while not released:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_lines_are_released_at_the_same_time(driver: LedgerDriver, clock: ManualClock) -> None:
    """One after the other, each took a turn of its own: with a flood on all lanes, services waited for their turn."""
    cap = await make_cap(driver, maximum=4)
    clock.is_holding_back = True
    for number in range(3):
        await driver.create(tenant_id=f"tenant {number}")
    waiting, most = 0, 0
    are_done = asyncio.Event()

    async def release(job_ids: list[str]) -> None:
        nonlocal waiting, most
        waiting += len(job_ids)
        most = max(most, waiting)
        if most == 3:
            are_done.set()
        await are_done.wait()
        waiting -= len(job_ids)

    running = asyncio.create_task(cap.run(release, Observer()))
    try:
        await asyncio.wait_for(are_done.wait(), SECONDS_MAX)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
