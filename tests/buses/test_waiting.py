"""Receivers that wait: a message wakes one of them, and none of them is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import pytest

from lucius.buses.waiting import WOKEN_BY_A_FULL_TAKE, Waiting

LOOK_SECONDS = 0.02
WAIT_SECONDS = 30.0
TEST_SECONDS_MAX = 20.0


class Inbox:
    """A queue, with a count of how often it was looked into."""

    def __init__(self) -> None:
        self.messages: deque[str] = deque()
        self.looks = 0

    async def take(self) -> list[str]:
        self.looks += 1
        return [self.messages.popleft()] if self.messages else []


async def _asleep() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_message_wakes_one_of_many_receivers() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS)
    receivers = [asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take)) for _ in range(1_000)]
    await _asleep()
    looks = inbox.looks

    inbox.messages.append("one")
    waiting.wake("lane")
    done, rest = await asyncio.wait(receivers, timeout=TEST_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)

    assert [task.result() for task in done] == [["one"]]
    await _asleep()
    assert inbox.looks - looks <= 1 + WOKEN_BY_A_FULL_TAKE
    for task in rest:
        task.cancel()


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_full_take_wakes_two_more_however_many_queues_they_wait_for(limit: int) -> None:
    """Each of these looks was a request to NATS for each lane: idle workers cost 5 ms of processor a message."""
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS)
    others = [0]

    async def take_more() -> list[str]:
        others[0] += 1
        return []

    lanes = [f"lane {number}" for number in range(16)]
    receivers = [
        asyncio.create_task(waiting.receive(lanes, limit, WAIT_SECONDS, inbox.take, take_more)) for _ in range(64)
    ]
    await _asleep()
    looks = inbox.looks

    inbox.messages.append("one")
    waiting.wake(lanes[3])
    await asyncio.wait(receivers, timeout=TEST_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
    await _asleep()
    await _asleep()
    assert (inbox.looks - looks, others[0]) == (1, WOKEN_BY_A_FULL_TAKE if limit == 1 else 0)
    for task in receivers:
        task.cancel()


async def test_a_message_that_comes_while_a_receiver_looks_for_more_is_found_at_once() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS)
    looks = 0

    async def too_early() -> list[str]:
        nonlocal looks
        looks += 1
        found = await inbox.take()
        if looks == 1:
            inbox.messages.append("two")
            assert not waiting.wake("lane"), "nobody sleeps"
        return found

    first, second = (
        asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take, too_early)) for _ in range(2)
    )
    await _asleep()
    inbox.messages.append("one")
    waiting.wake("lane")
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert [await first, await second] == [["one"], ["two"]]
    assert looks == 2


async def test_a_receiver_that_joins_others_does_not_look() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS)
    first = asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take))
    await _asleep()
    second = asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take))
    await _asleep()
    assert inbox.looks == 1

    assert await waiting.receive(["lane"], 1, 0.0, inbox.take) == []
    assert inbox.looks == 2, "who does not wait looks in any case"
    for task in (first, second):
        task.cancel()


async def test_messages_that_nobody_announced_are_all_found() -> None:
    inbox, waiting = Inbox(), Waiting[str](LOOK_SECONDS)
    receivers = [asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take)) for _ in range(50)]
    await _asleep()

    inbox.messages.extend(f"message {number}" for number in range(50))
    async with asyncio.timeout(TEST_SECONDS_MAX):
        found = await asyncio.gather(*receivers)

    assert Counter(message for taken in found for message in taken) == Counter(
        f"message {number}" for number in range(50)
    )


async def test_a_message_whose_receiver_went_away_is_found_by_another() -> None:
    inbox, waiting = Inbox(), Waiting[str](LOOK_SECONDS)
    first = asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take))
    await _asleep()
    second = asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take))
    await _asleep()

    inbox.messages.append("one")
    waiting.wake("lane")
    first.cancel()

    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await second == ["one"]


async def test_every_queue_is_looked_at_whoever_else_waits_for_another() -> None:
    inboxes = {lane: Inbox() for lane in ("a", "b")}
    waiting = Waiting[str](LOOK_SECONDS)
    receivers = {
        lane: asyncio.create_task(waiting.receive([lane], 1, WAIT_SECONDS, inbox.take))
        for lane, inbox in inboxes.items()
    }
    await _asleep()

    inboxes["b"].messages.append("for b")
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await receivers["b"] == ["for b"]
    receivers["a"].cancel()


async def test_waiting_ends_with_its_time() -> None:
    inbox, waiting = Inbox(), Waiting[str](WAIT_SECONDS)
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await waiting.receive(["lane"], 1, 0.05, inbox.take) == []
    assert inbox.looks == 2, "a last look is made when the time is over"


async def test_receivers_whose_time_is_over_leave_the_looking_to_those_who_still_wait() -> None:
    inbox, waiting = Inbox(), Waiting[str](WAIT_SECONDS)
    patient = asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take))
    await _asleep()
    async with asyncio.timeout(TEST_SECONDS_MAX):
        found = await asyncio.gather(*(waiting.receive(["lane"], 1, 0.05, inbox.take) for _ in range(100)))
    assert found == [[]] * 100
    assert inbox.looks == 1
    patient.cancel()


async def test_a_receiver_that_is_woken_looks_even_where_others_wait() -> None:
    inbox, waiting = Inbox(), Waiting[str](WAIT_SECONDS)
    receivers = [asyncio.create_task(waiting.receive(["lane"], 1, WAIT_SECONDS, inbox.take)) for _ in range(3)]
    await _asleep()
    inbox.messages.append("one")
    waiting.wake("lane")
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await receivers[0] == ["one"]
    for receiver in receivers[1:]:
        receiver.cancel()


async def test_a_message_that_comes_while_the_only_receiver_looks_is_found_without_waiting_for_the_next_look() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS)

    async def look_too_early() -> list[str]:
        found = await inbox.take()
        if inbox.looks == 1:
            inbox.messages.append("one")
            assert not waiting.wake("lane"), "nobody sleeps"
        return found

    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await waiting.receive(["lane"], 2, WAIT_SECONDS, look_too_early) == ["one"]


async def test_waking_all_wakes_one_receiver_of_each_queue() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS)
    lanes = ("first", "second")
    receivers = {
        lane: [asyncio.create_task(waiting.receive([lane], 2, WAIT_SECONDS, inbox.take)) for _ in range(3)]
        for lane in lanes
    }
    await _asleep()
    looks = inbox.looks
    inbox.messages.extend(["one", "two"])
    waiting.wake_all()
    async with asyncio.timeout(TEST_SECONDS_MAX):
        for lane in lanes:
            await asyncio.wait(receivers[lane], return_when=asyncio.FIRST_COMPLETED)
    assert inbox.looks - looks == len(lanes)
    for task in (task for tasks in receivers.values() for task in tasks):
        task.cancel()


async def test_a_receiver_that_comes_back_to_an_emptied_queue_does_not_look_until_something_is_announced() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS, are_announced=lambda: True)
    inbox.messages.append("one")
    assert await waiting.receive(["lane"], 9, WAIT_SECONDS, inbox.take) == ["one"]
    second = asyncio.create_task(waiting.receive(["lane"], 9, WAIT_SECONDS, inbox.take))
    await _asleep()
    assert inbox.looks == 1
    inbox.messages.append("two")
    waiting.wake("lane")
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await second == ["two"]
        # A message that is announced while nobody waits, and one of another queue that this receiver has not looked at.
        for keys in (["lane"], ["lane", "other"]):
            inbox.messages.append("three")
            waiting.wake(keys[-1])
            assert await waiting.receive(keys, 9, WAIT_SECONDS, inbox.take) == ["three"]
    assert await waiting.receive(["lane"], 9, 0.0, inbox.take) == []
    assert inbox.looks == 5, "who does not wait looks in any case"


async def test_an_emptied_queue_is_looked_at_if_it_may_have_been_missed() -> None:
    """After a full take, after everybody was woken, and where not everything is announced."""
    is_announced = True
    inbox, waiting = Inbox(), Waiting[str](look_seconds=WAIT_SECONDS, are_announced=lambda: is_announced)
    async with asyncio.timeout(TEST_SECONDS_MAX):
        for limit, looks in ((1, 1), (9, 2), (9, 3), (9, 4)):
            inbox.messages.append("one")
            if looks == 3:
                waiting.wake_all()
            if looks == 4:
                is_announced = False
            assert await waiting.receive(["lane"], limit, WAIT_SECONDS, inbox.take) == ["one"]
            assert inbox.looks == looks


async def test_what_becomes_deliverable_in_an_emptied_queue_is_found_by_a_later_look() -> None:
    inbox, waiting = Inbox(), Waiting[str](look_seconds=LOOK_SECONDS, are_announced=lambda: True)
    assert await waiting.receive(["lane"], 9, LOOK_SECONDS, inbox.take) == []
    inbox.messages.append("one")
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert await waiting.receive(["lane"], 9, WAIT_SECONDS, inbox.take) == ["one"]
