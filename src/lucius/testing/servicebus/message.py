"""An AMQP message in its sections: what a sender gave, and what the broker adds for receivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lucius.testing.servicebus.codec import DecodeError, decode, encode
from lucius.testing.servicebus.types import Described, Int, Symbol, Timestamp, UInt, ULong

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
BATCH_FORMAT = 0x80013700
BATCH_MESSAGES_MAX = 4_500
"""Service Bus's own limit on Standard."""

PROPERTY_INDEX = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "session_id": 10,
    "reply_to_session_id": 12,
}
PROPERTIES_COUNT = 13

ACTIVE, DEFERRED, SCHEDULED = 0, 1, 2
"""Values of `x-opt-message-state`."""
SCHEDULED_ANNOTATION = "x-opt-scheduled-enqueue-time"
PARTITION_KEY_ANNOTATION = "x-opt-partition-key"


def sections(raw: bytes) -> Iterator[tuple[int, Any, int]]:
    """The code, value and start of each section."""
    at = 0
    while at < len(raw):
        section, end = decode(raw, at)
        if not isinstance(section, Described) or not isinstance(section.descriptor, int):
            raise DecodeError("A message consists of sections.")
        yield int(section.descriptor), section.value, at
        at = end


@dataclass(frozen=True, slots=True)
class Message:
    ttl_ms: int | None
    annotations: Mapping[str, Any]
    properties: tuple[Any, ...]
    application_properties: Mapping[str, Any]
    body: bytes
    """The sections of the body and the footer, as they came."""

    @classmethod
    def parse(cls, raw: bytes) -> Message:
        found: dict[int, Any] = {}
        body_at = len(raw)
        for code, value, at in sections(raw):
            if not HEADER <= code <= FOOTER:
                raise DecodeError(f"A message has no section 0x{code:02x}.")
            if code >= DATA:
                body_at = min(body_at, at)
            else:
                found[code] = value
        header = _list(found.get(HEADER), 5)
        ttl = header[2]
        return cls(
            ttl_ms=int(ttl) if isinstance(ttl, int) and not isinstance(ttl, bool) else None,
            annotations=_string_keys(found.get(ANNOTATIONS)),
            properties=tuple(_list(found.get(PROPERTIES), PROPERTIES_COUNT)),
            application_properties=_string_keys(found.get(APPLICATION_PROPERTIES)),
            body=raw[body_at:],
        )

    def value_of(self, name: str) -> Any:
        return self.properties[PROPERTY_INDEX[name]]

    @property
    def message_id(self) -> Any:
        return self.properties[0]

    @property
    def session_id(self) -> str | None:
        given = self.value_of("session_id")
        return None if given is None else str(given)

    @property
    def scheduled_at(self) -> float | None:
        due = self.annotations.get(SCHEDULED_ANNOTATION)
        return due / 1000 if isinstance(due, int) else None

    @property
    def size(self) -> int:
        return len(self.body) + len(self._bare_head())

    def with_property(self, name: str, value: Any) -> Message:
        changed = list(self.properties)
        changed[PROPERTY_INDEX[name]] = value
        return replace(self, properties=tuple(changed))

    def with_application_properties(self, values: Mapping[str, Any]) -> Message:
        """These beside those that it has."""
        return replace(self, application_properties={**self.application_properties, **values})

    def without_application_property(self, name: str) -> Message:
        kept = {key: value for key, value in self.application_properties.items() if key != name}
        return replace(self, application_properties=kept)

    def with_annotations(self, values: Mapping[str, Any]) -> Message:
        return replace(self, annotations={**self.annotations, **values})

    def encoded(self, delivery_count: int, added: Mapping[str, Any]) -> bytes:
        """The whole message as a receiver gets it. The header is always there: clients rely on its delivery count."""
        ttl = None if self.ttl_ms is None else UInt(min(self.ttl_ms, 2**32 - 1))
        header = [True, None, ttl, None, UInt(delivery_count)]
        annotations = {Symbol(key): value for key, value in {**self.annotations, **added}.items()}
        head = encode(Described(ULong(HEADER), header)) + encode(Described(ULong(ANNOTATIONS), annotations))
        return head + self._bare_head() + self.body

    def _bare_head(self) -> bytes:
        values = list(self.properties)
        while values and values[-1] is None:
            values.pop()
        head = encode(Described(ULong(PROPERTIES), values)) if values else b""
        if self.application_properties:
            head += encode(Described(ULong(APPLICATION_PROPERTIES), dict(self.application_properties)))
        return head


def _list(value: Any, length: int) -> list[Any]:
    if value is None:
        return [None] * length
    if not isinstance(value, list) or len(value) > length:
        raise DecodeError("The header or the properties of a message are no list of their fields.")
    return value + [None] * (length - len(value))


def _string_keys(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise DecodeError("The annotations or application properties of a message are no map with names as keys.")
    return {str(key): item for key, item in value.items()}


def parse_transfer(raw: bytes, message_format: int) -> list[Message]:
    """The message, or the messages of a batch."""
    if message_format != BATCH_FORMAT:
        return [Message.parse(raw)]
    messages: list[Message] = []
    for code, value, _ in sections(raw):
        if code == DATA:
            if not isinstance(value, bytes) or len(messages) == BATCH_MESSAGES_MAX:
                raise DecodeError(f"A batch consists of at most {BATCH_MESSAGES_MAX} messages, each as binary data.")
            messages.append(Message.parse(value))
    return messages


def broker_annotations(
    sequence_number: int, enqueued_at: float, state: int, locked_until: float | None = None
) -> dict[str, Any]:
    added: dict[str, Any] = {
        "x-opt-sequence-number": sequence_number,
        "x-opt-enqueued-time": Timestamp.of(enqueued_at),
        "x-opt-message-state": Int(state),
    }
    if locked_until is not None:
        added["x-opt-locked-until"] = Timestamp.of(locked_until)
    return added
