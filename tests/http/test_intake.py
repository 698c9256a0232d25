"""Requests are started a few at a time: a crowd of one sender's delays nobody else's."""

from __future__ import annotations

import asyncio

from lucius.api.intake import CROWD, STARTS_PER_TURN, Intake


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_few_requests_start_at_once() -> None:
    started: list[str] = []
    intake = Intake()
    for number in range(STARTS_PER_TURN):
        intake.start(lambda: "flood", lambda number=number: started.append(f"{number}"))
    assert len(started) == STARTS_PER_TURN


async def test_another_sender_does_not_wait_for_a_crowd() -> None:
    started: list[str] = []
    intake = Intake()
    for _ in range(2_000):
        intake.start(lambda: "flood", lambda: started.append("flood"))
    intake.start(lambda: "bystander", lambda: started.append("bystander"))
    assert len(started) == STARTS_PER_TURN, "the rest wait for the next turns"

    await _turns(2)
    assert "bystander" in started
    assert len(started) <= 4 * STARTS_PER_TURN


async def test_of_a_crowd_one_starts_in_each_turn_and_of_a_few_several() -> None:
    """Requests that are under way go on between two starts: what takes many turns waits less for a crowd."""
    started = 0
    intake = Intake()

    def begin() -> None:
        nonlocal started
        started += 1

    for _ in range(STARTS_PER_TURN + CROWD + 8 * STARTS_PER_TURN):
        intake.start(lambda: "flood", begin)
    before, waiting = started, CROWD + 8 * STARTS_PER_TURN
    await _turns(8)
    assert started - before == 8
    await _turns(waiting - CROWD - 8)
    before = started
    await _turns(4)
    assert started - before == 4 * STARTS_PER_TURN


async def test_everything_is_started_in_the_end_in_each_senders_order() -> None:
    started: dict[str, list[int]] = {"a": [], "b": []}
    intake = Intake()
    for number in range(100):
        for sender, numbers in started.items():
            intake.start(lambda sender=sender: sender, lambda numbers=numbers, n=number: numbers.append(n))
    await _turns(200)
    assert started == {"a": list(range(100)), "b": list(range(100))}

    intake.start(lambda: "a", lambda: started["a"].append(-1))
    assert started["a"][-1] == -1, "after the crowd requests start at once again"
