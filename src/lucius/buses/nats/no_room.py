"""Topics whose stream takes no messages: the server's words, until it has taken one again.

Nothing else tells: a stream or a server that is full answers every question as usual.
"""

from __future__ import annotations

import logging

log = logging.getLogger("lucius.bus")


class NoRoom:
    def __init__(self, location: str) -> None:
        self._location = location
        self._said: dict[str, str] = {}

    def met(self, topic: str, words: str) -> str:
        """The sentence about it, which is logged when it begins."""
        sentence = f"topic {topic} on NATS at {self._location} takes no messages, which wait until it does: {words}"
        if self._said.get(topic) != sentence:
            log.error("%s", sentence)
        self._said[topic] = sentence
        return sentence

    def taken(self, topic: str) -> None:
        if self._said.pop(topic, None) is not None:
            log.warning("topic %s on NATS at %s takes messages again", topic, self._location)

    def sentence(self) -> str | None:
        """About all of them."""
        if not self._said:
            return None
        first, *others = self._said.values()
        return f"{first}; and {len(others)} more" if others else first
