"""Names of streams, consumers and subjects. Each message has a subject of its own, by which any process finds it."""

from __future__ import annotations

import re

from lucius.ports.bus import DeliveryRef

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")


def token(text: str) -> str:
    """One word of a subject: what has a meaning there is written as %XX."""
    return _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], text.encode()).decode("ascii")


class Names:
    def __init__(self, prefix: str) -> None:
        self._prefix = token(prefix)
        self.subscriptions = f"{self._prefix}-subscriptions"
        self.locks = f"{self._prefix}-locks"
        self.dead = f"{self._prefix}-dead"

    def everything(self) -> str:
        return f"{self._prefix}.>"

    def topic(self, topic: str) -> str:
        """The stream of a topic."""
        return f"{self._prefix}-topic-{token(topic)}"

    def topic_subjects(self, topic: str) -> list[str]:
        return [f"{self._prefix}.{kind}.{token(topic)}.>" for kind in ("queue", "later")]

    def consumer(self, name: str) -> str:
        return token(name)

    def dead_consumer(self, topic: str, name: str) -> str:
        return f"{token(topic)}-{token(name)}"

    def subscription(self, topic: str, name: str) -> str:
        return f"{self._prefix}.subscription.{token(topic)}.{token(name)}"

    def every_subscription(self) -> str:
        return f"{self._prefix}.subscription.>"

    def queue(self, topic: str, name: str) -> str:
        """The subjects of all messages that wait in a subscription."""
        return f"{self._prefix}.queue.{token(topic)}.{token(name)}.*"

    def queued(self, ref: DeliveryRef) -> str:
        return self._of("queue", ref)

    def later(self, ref: DeliveryRef) -> str:
        """Where a message is until its time has come."""
        return self._of("later", ref)

    def lock(self, ref: DeliveryRef) -> str:
        return self._of("lock", ref)

    def every_lock(self) -> str:
        return f"{self._prefix}.lock.>"

    def dead_letter(self, ref: DeliveryRef) -> str:
        return self._of("dead", ref)

    def dead_letters(self, topic: str, name: str) -> str:
        return f"{self._prefix}.dead.{token(topic)}.{token(name)}.*"

    def every_dead_letter(self) -> str:
        return f"{self._prefix}.dead.>"

    def wake(self, topic: str, name: str) -> str:
        """Not kept by any stream: tells receivers in other processes that there is something to fetch."""
        return f"{self._prefix}.wake.{token(topic)}.{token(name)}"

    def every_wake(self) -> str:
        return f"{self._prefix}.wake.>"

    def _of(self, kind: str, ref: DeliveryRef) -> str:
        return f"{self._prefix}.{kind}.{token(ref.topic)}.{token(ref.subscription)}.{token(ref.message_id)}"
