"""Slots: an owner's share, the order in which owners are served, and what becomes of those who give up."""

from __future__ import annotations

import asyncio

import pytest

from lucius.usecases.fair_slots import FairSlots, NoSlot


class Visits:
    """Who held a slot, in order; each leaves when it is told to."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.came: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def enter(self, name: str) -> None:
        self._leave[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._visit(name))
        await settle()

    async def leave(self, name: str) -> None:
        self._leave[name].set()
        await self._tasks[name]
        await settle()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)

    async def _visit(self, name: str) -> None:
        async with self.slots.slot(name[0]):
            self.came.append(name)
            await self._leave[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_owner_holds_no_more_than_its_share() -> None:
    visits = Visits(FairSlots(3, 2, 10, 60))
    for name in ("a1", "a2", "a3", "b1"):
        await visits.enter(name)
    assert visits.came == ["a1", "a2", "b1"]
    await visits.leave("b1")
    assert visits.came == ["a1", "a2", "b1"], "a free slot beyond its share is not for it"
    await visits.leave("a1")
    assert visits.came == ["a1", "a2", "b1", "a3"]


async def test_owners_are_served_in_turn_however_many_one_has_waiting() -> None:
    visits = Visits(FairSlots(1, 1, 10, 60))
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        await visits.enter(name)
    for _ in range(6):
        await visits.leave(visits.came[-1])
    assert visits.came == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_slot_is_given_on_when_a_waiting_one_gives_up() -> None:
    visits = Visits(FairSlots(1, 1, 10, 60))
    for name in ("a1", "b1", "c1"):
        await visits.enter(name)
    await visits.give_up("b1")
    await visits.leave("a1")
    assert visits.came == ["a1", "c1"]


async def test_slot_that_came_at_the_moment_of_giving_up_is_not_lost() -> None:
    visits = Visits(FairSlots(1, 1, 10, 60))
    await visits.enter("a1")
    await visits.enter("b1")
    visits._leave["a1"].set()
    await visits._tasks["a1"]  # b1 has the slot, and has not run yet.
    await visits.give_up("b1")
    await visits.enter("c1")
    assert visits.came[-1] == "c1"


async def test_waiting_has_an_end() -> None:
    slots = FairSlots(1, 1, 1, 0.05)
    async with slots.slot("a"):
        with pytest.raises(NoSlot, match=r"within 0\.05 s"):
            async with slots.slot("b"):
                raise AssertionError("there was no slot")
    async with slots.slot("b"):
        pass


async def test_no_more_may_wait_than_are_allowed() -> None:
    visits = Visits(FairSlots(1, 1, 2, 60))
    for name in ("a1", "a2", "a3"):
        await visits.enter(name)
    with pytest.raises(NoSlot, match="2 are already waiting"):
        async with visits.slots.slot("a"):
            raise AssertionError("there was no slot")
    await visits.enter("b1")
    for _ in range(3):
        await visits.leave(visits.came[-1])
    assert sorted(visits.came) == ["a1", "a2", "a3", "b1"]
