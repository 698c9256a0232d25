"""The entities of a namespace by their paths, and how messages reach them. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import uuid4

from lucius.testing.servicebus.duplicates import DuplicateWindow
from lucius.testing.servicebus.filters import Rule, passed
from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.queue import MessageQueue
from lucius.testing.servicebus.refusals import (
    entity_exists,
    entity_full,
    entity_not_found,
    message_not_found,
    not_allowed,
)
from lucius.testing.servicebus.settings import (
    NamespaceSettings,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)

DEAD_LETTERS = "$deadletterqueue"
ENTITIES_MAX = 10_000
NAME_CHARS_MAX = 260


def path_of(address: str) -> str:
    """The path in an address (`sb://host/topic/Subscriptions/name`, or without scheme and host), for comparing."""
    path = urlsplit(address).path if "://" in address else address
    return path.strip("/").lower()


@dataclass(slots=True)
class QueueEntity:
    name: str
    queue: MessageQueue
    duplicates: DuplicateWindow | None

    def queues(self) -> Iterator[MessageQueue]:
        yield from _with_dead_letters(self.queue)

    def put(self, message: Message, now: float, due_at: float | None) -> tuple[int, list[MessageQueue]]:
        return self.queue.put(message, now, due_at), [self.queue]

    def check(self, messages: Sequence[Message]) -> None:
        if self.queue.settings.requires_session and any(message.session_id is None for message in messages):
            raise not_allowed(f"The queue '{self.name}' requires sessions: every message needs a session id.")
        _check_room(self.name, self.queue.size_bytes, messages, self.queue.settings.size_bytes_max)

    def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        self.queue.cancel_scheduled(numbers)


@dataclass(slots=True)
class Subscription:
    name: str
    queue: MessageQueue
    rules: dict[str, Rule]


@dataclass(slots=True)
class Topic:
    name: str
    settings: TopicSettings
    duplicates: DuplicateWindow | None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    scheduled: dict[int, tuple[float, Message]] = field(default_factory=dict)
    last_number: int = 0

    def queues(self) -> Iterator[MessageQueue]:
        for subscription in self.subscriptions.values():
            yield from _with_dead_letters(subscription.queue)

    def put(self, message: Message, now: float, due_at: float | None) -> tuple[int, list[MessageQueue]]:
        self.last_number += 1
        if due_at is not None:
            self.scheduled[self.last_number] = (due_at, message)
            return self.last_number, []
        return self.last_number, self.fan_out(message, now)

    def fan_out(self, message: Message, now: float) -> list[MessageQueue]:
        reached = []
        for subscription in self.subscriptions.values():
            for copy in passed(list(subscription.rules.values()), message):
                queue = subscription.queue
                if queue.settings.requires_session and copy.session_id is None and queue.dead_letters is not None:
                    reason = "Session enabled entity doesn't allow a message whose session identifier is null."
                    told = {"DeadLetterReason": "Session ID is null", "DeadLetterErrorDescription": reason}
                    queue.dead_letters.put(copy.with_application_properties(told), now)
                    reached.append(queue.dead_letters)
                else:
                    queue.put(copy, now, ttl_seconds=self.settings.ttl_seconds)
                    reached.append(queue)
        return reached

    def check(self, messages: Sequence[Message]) -> None:
        held = sum(queue.size_bytes for queue in self.queues())
        _check_room(self.name, held, messages, self.settings.size_bytes_max)

    def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number not in self.scheduled:
                raise message_not_found(number)
        for number in numbers:
            del self.scheduled[number]

    def advance(self, now: float) -> list[MessageQueue]:
        due = sorted((at, number) for number, (at, _) in self.scheduled.items() if at <= now)
        return [queue for at, number in due for queue in self.fan_out(self.scheduled.pop(number)[1], at)]


def _with_dead_letters(queue: MessageQueue) -> Iterator[MessageQueue]:
    yield queue
    if queue.dead_letters is not None:
        yield queue.dead_letters


def _check_room(name: str, held: int, messages: Sequence[Message], bytes_max: int) -> None:
    if held + sum(message.size for message in messages) > bytes_max:
        raise entity_full(name, bytes_max)


class Namespace:
    def __init__(self, settings: NamespaceSettings | None = None) -> None:
        self.entities: dict[str, QueueEntity | Topic] = {}
        self._queues: dict[str, MessageQueue] = {}
        """Everything that can be received from, dead-letter queues included."""
        for name, queue in (settings.queues if settings else {}).items():
            self.create_queue(name, queue)
        for name, topic in (settings.topics if settings else {}).items():
            self.create_topic(name, topic)

    # --- Entities ----------------------------------------------------------------------------------------------------

    def create_queue(self, name: str, settings: QueueSettings) -> QueueEntity:
        self._check_name(name)
        entity = QueueEntity(name, self._new_queue(name, settings), _window(settings.duplicate_seconds))
        self.entities[path_of(name)] = entity
        return entity

    def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        self._check_name(name)
        topic = Topic(name, settings, _window(settings.duplicate_seconds))
        self.entities[path_of(name)] = topic
        for subscription_name, subscription in settings.subscriptions.items():
            self.create_subscription(name, subscription_name, subscription)
        return topic

    def create_subscription(self, topic_name: str, name: str, settings: SubscriptionSettings) -> Subscription:
        topic = self.topic(topic_name)
        if name.lower() in topic.subscriptions:
            raise entity_exists(f"{topic.name}/Subscriptions/{name}")
        queue = self._new_queue(f"{topic.name}/Subscriptions/{name}", settings.queue)
        subscription = Subscription(name, queue, {rule.name: rule for rule in settings.rules})
        topic.subscriptions[name.lower()] = subscription
        return subscription

    def delete(self, name: str) -> None:
        entity = self.entity(name)
        for queue in entity.queues():
            del self._queues[path_of(queue.path)]
        del self.entities[path_of(name)]

    def delete_subscription(self, topic_name: str, name: str) -> None:
        subscription = self.subscription(topic_name, name)
        for queue in _with_dead_letters(subscription.queue):
            del self._queues[path_of(queue.path)]
        del self.topic(topic_name).subscriptions[name.lower()]

    def entity(self, name: str) -> QueueEntity | Topic:
        found = self.entities.get(path_of(name))
        if found is None:
            raise entity_not_found(name)
        return found

    def topic(self, name: str) -> Topic:
        found = self.entity(name)
        if not isinstance(found, Topic):
            raise entity_not_found(name)
        return found

    def subscription(self, topic_name: str, name: str) -> Subscription:
        found = self.topic(topic_name).subscriptions.get(name.lower())
        if found is None:
            raise entity_not_found(f"{topic_name}/Subscriptions/{name}")
        return found

    def queue(self, path: str) -> MessageQueue:
        """The queue, subscription or dead-letter queue that a receiver names."""
        found = self._queues.get(path_of(path))
        if found is None:
            raise entity_not_found(path)
        return found

    def queues(self) -> list[MessageQueue]:
        return list(self._queues.values())

    # --- Messages ----------------------------------------------------------------------------------------------------

    def publish(self, path: str, messages: Sequence[Message], now: float) -> tuple[list[int], list[MessageQueue]]:
        """All of the messages or none; returns their sequence numbers and the queues that they reached."""
        entity = self.entity(path)
        entity.check(messages)
        numbers, reached = [], []
        for given in messages:
            # As Service Bus does: Azure's client for Node cannot settle a message that has no id.
            message = given if given.message_id is not None else given.with_property("message_id", uuid4().hex)
            window = entity.duplicates
            first = window.first_number(message.message_id, now) if window is not None else None
            if first is not None:
                numbers.append(first)
                continue
            due_at = message.scheduled_at
            number, queues = entity.put(message, now, due_at if due_at is not None and due_at > now else None)
            if window is not None:
                window.remember(message.message_id, number, now)
            numbers.append(number)
            reached += queues
        return numbers, reached

    def advance(self, now: float) -> tuple[list[MessageQueue], list[object]]:
        """The queues that changed with the time, and the owners of sessions whose locks are lost."""
        changed: list[MessageQueue] = []
        lost: list[object] = []
        for entity in self.entities.values():
            if isinstance(entity, Topic) and entity.scheduled:
                changed += entity.advance(now)
        for queue in self._queues.values():
            lost += queue.advance(now)
            if len(queue):
                changed.append(queue)
        return changed, lost

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _new_queue(self, path: str, settings: QueueSettings) -> MessageQueue:
        dead_settings = QueueSettings(lock_seconds=settings.lock_seconds)
        dead_letters = MessageQueue(f"{path}/$DeadLetterQueue", dead_settings)
        queue = MessageQueue(path, settings, dead_letters)
        self._queues[path_of(path)] = queue
        self._queues[path_of(dead_letters.path)] = dead_letters
        return queue

    def _check_name(self, name: str) -> None:
        if path_of(name) in self.entities:
            raise entity_exists(name)
        if not path_of(name) or len(name) > NAME_CHARS_MAX or "$" in name or len(self.entities) >= ENTITIES_MAX:
            raise not_allowed(
                f"An entity's name has 1 to {NAME_CHARS_MAX} characters and no '$', and a namespace at most "
                f"{ENTITIES_MAX} entities: '{name[:NAME_CHARS_MAX]}' is refused."
            )


def _window(seconds: float | None) -> DuplicateWindow | None:
    return None if seconds is None else DuplicateWindow(seconds)
