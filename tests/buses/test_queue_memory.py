"""What is settled is gone from memory, though its lock would have lasted longer."""

from __future__ import annotations

from lucius.buses.queues import LATER_KEPT, Queue, QueuedMessage
from lucius.ports.bus import Subscription

FAR_AHEAD = 10**12


def filled(count: int) -> Queue:
    queue = Queue(Subscription(topic="jobs", name="worker"))
    for number in range(count):
        queue.add(QueuedMessage(f"m{number}", b"body", {}, 0, 0, FAR_AHEAD), 0)
    return queue


def test_settled_messages_leave_nothing_behind() -> None:
    queue = filled(20 * LATER_KEPT)
    while taken := queue.take(0, 256, 60_000):
        for held in taken:
            queue.remove(held.message_id)
    assert len(queue._later) <= LATER_KEPT + 256


def test_locks_outlast_the_clearing() -> None:
    queue = filled(4 * LATER_KEPT)
    kept = queue.take(0, 10, 5_000)
    while taken := queue.take(0, 256, 60_000):
        for held in taken:
            queue.remove(held.message_id)
    assert queue.take(4_999, 256, 60_000) == []
    assert {held.message_id for held in queue.take(5_000, 256, 60_000)} == {held.message_id for held in kept}
