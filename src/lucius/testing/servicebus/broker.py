"""Brings messages and receivers together: who may take the next message, who waits for a session, what time changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from lucius.testing.servicebus.faults import Faults
from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.namespace import Namespace
from lucius.testing.servicebus.queue import MessageQueue
from lucius.testing.servicebus.refusals import Refusal, no_session_in_time, not_allowed
from lucius.testing.servicebus.stored import Outcome, Stored


class Consumer(Protocol):
    """A receiving client's link."""

    session_id: str | None
    deletes: bool

    def can_take(self) -> bool: ...

    def deliver(self, stored: Stored) -> None: ...

    def lose_session(self) -> None: ...


@dataclass(slots=True)
class SessionRequest:
    """A receiver that waits until some session has messages."""

    owner: Consumer
    deadline: float
    answer: Callable[[str | Refusal], None]


class Broker:
    def __init__(self, namespace: Namespace, clock: Callable[[], float], faults: Faults) -> None:
        self.namespace = namespace
        self.clock = clock
        self.faults = faults
        self._consumers: dict[MessageQueue, list[Consumer]] = defaultdict(list)
        self._requests: dict[MessageQueue, list[SessionRequest]] = defaultdict(list)

    # --- Messages ----------------------------------------------------------------------------------------------------

    def publish(self, path: str, messages: Sequence[Message]) -> list[int]:
        numbers, reached = self.namespace.publish(path, messages, self.clock())
        for queue in dict.fromkeys(reached):
            self.pump(queue)
        return numbers

    def settle(
        self, queue: MessageQueue, token: UUID, outcome: Outcome, changes: Message | None, reason: tuple[str, str]
    ) -> None:
        queue.settle(token, outcome, self.clock(), changes, reason)
        if outcome is not Outcome.COMPLETE:
            self.pump(queue)
            if queue.dead_letters is not None:
                self.pump(queue.dead_letters)

    # --- Receivers ---------------------------------------------------------------------------------------------------

    def add(self, consumer: Consumer, queue: MessageQueue) -> None:
        self._consumers[queue].append(consumer)
        self.pump(queue)

    def remove(self, consumer: Consumer, queue: MessageQueue) -> None:
        self._consumers[queue] = [other for other in self._consumers[queue] if other is not consumer]
        self._requests[queue] = [other for other in self._requests[queue] if other.owner is not consumer]
        if consumer.session_id is not None:
            queue.release_session(consumer.session_id, consumer, self.clock())
            self.pump(queue)

    def accept_session(self, queue: MessageQueue, request: SessionRequest, wanted: str | None) -> None:
        """Locks the session for its owner, now or when one has messages; `request.answer` is called with its id."""
        if not queue.settings.requires_session:
            raise not_allowed(f"'{queue.path}' has no sessions: receive without a session id.")
        if wanted is not None:
            queue.sessions.lock(wanted, request.owner, self.clock())
            request.answer(wanted)
            return
        self._requests[queue].append(request)
        self._answer_requests(queue)

    def pump(self, queue: MessageQueue) -> None:
        """Hands out what can be handed out, to the receivers in turn."""
        if self._requests.get(queue):
            self._answer_requests(queue)
        if self.faults.is_stalled(queue.path):
            return
        consumers = self._consumers.get(queue)
        waiting = list(consumers or ())
        while waiting:
            consumer = waiting.pop(0)
            if not consumer.can_take() or (stored := self._take(queue, consumer)) is None:
                continue
            consumer.deliver(stored)
            waiting.append(consumer)
            if consumers and len(consumers) > 1 and consumer in consumers:
                consumers.remove(consumer)
                consumers.append(consumer)

    def pump_all(self) -> None:
        for queue in self.namespace.queues():
            self.pump(queue)

    def _take(self, queue: MessageQueue, consumer: Consumer) -> Stored | None:
        now = self.clock()
        if consumer.session_id is not None and not queue.sessions.holds(consumer.session_id, consumer, now):
            return None
        return queue.take(now, consumer.session_id, consumer.deletes)

    def _answer_requests(self, queue: MessageQueue) -> None:
        now = self.clock()
        while self._requests[queue]:
            session_id = queue.next_session(now)
            if session_id is None:
                return
            request = self._requests[queue].pop(0)
            queue.sessions.lock(session_id, request.owner, now)
            request.answer(session_id)

    # --- Time --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        now = self.clock()
        changed, lost = self.namespace.advance(now)
        self._lose(lost)
        for queue in dict.fromkeys(changed):
            if self._consumers.get(queue) or self._requests.get(queue):
                self.pump(queue)
        for queue, requests in list(self._requests.items()):
            late = [request for request in requests if request.deadline <= now]
            self._requests[queue] = [request for request in requests if request.deadline > now]
            for request in late:
                request.answer(no_session_in_time())

    def lose_locks(self, path: str) -> None:
        """As if every lock on the queue, subscription or dead-letter queue had run out."""
        queue = self.namespace.queue(path)
        self._lose(queue.lose_locks(self.clock()))
        self.pump(queue)

    def _lose(self, owners: list[object]) -> None:
        for consumers in list(self._consumers.values()) if owners else ():
            for consumer in list(consumers):
                if any(consumer is owner for owner in owners):
                    consumer.lose_session()
