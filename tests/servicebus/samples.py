"""Messages for the tests of this folder."""

from __future__ import annotations

from typing import Any

from lucius.testing.servicebus.codec import encode
from lucius.testing.servicebus.message import PROPERTIES_COUNT, PROPERTY_INDEX, Message
from lucius.testing.servicebus.types import Described, ULong


def message(body: str = "x", ttl_ms: int | None = None, due_at: float | None = None, **given: Any) -> Message:
    """`given` are properties by name (`message_id=…`) or, anything else, application properties."""
    properties: list[Any] = [None] * PROPERTIES_COUNT
    for name in [name for name in given if name in PROPERTY_INDEX]:
        properties[PROPERTY_INDEX[name]] = given.pop(name)
    annotations = {} if due_at is None else {"x-opt-scheduled-enqueue-time": round(due_at * 1000)}
    payload = encode(Described(ULong(0x75), body.encode()))
    return Message(ttl_ms, annotations, tuple(properties), given, payload)


def text_of(found: Message) -> str:
    return found.body[5:].decode()
