"""Messages as Service Bus has them, and back.

Properties are application properties, the id is the message id. An id that is longer than Service Bus allows, and that
of a dead letter that is sent again (its own would be dropped as a duplicate), is in a property instead.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from lucius.domain.time import Instant, from_datetime
from lucius.ports.bus import Message

ID_CHARS_MAX = 128
ID_PROPERTY = "lucius_message_id"
ONLY_PROPERTY = "lucius_subscription"
"""Names the one subscription that a message is for which is sent again."""
_OWN = {ID_PROPERTY, ONLY_PROPERTY, "DeadLetterReason", "DeadLetterErrorDescription", "Diagnostic-Id"}


def to_wire(message: Message, now: Instant) -> ServiceBusMessage:
    properties: dict[Any, Any] = dict(message.properties)
    name = message.id
    if len(name) > ID_CHARS_MAX:
        properties[ID_PROPERTY] = name
        name = hashlib.sha256(name.encode()).hexdigest()
    is_later = message.deliver_at is not None and message.deliver_at > now
    return ServiceBusMessage(
        message.body,
        message_id=name,
        content_type=message.content_type,
        subject=message.subject or None,
        correlation_id=message.correlation_id[:ID_CHARS_MAX] or None,
        application_properties=properties,
        scheduled_enqueue_time_utc=_datetime(message.deliver_at) if is_later else None,
    )


def again(letter: ServiceBusReceivedMessage, body: bytes, message_id: str, subscription: str) -> ServiceBusMessage:
    """A dead letter as a new message for its subscription alone."""
    properties: dict[Any, Any] = {
        **properties_of(letter),
        ID_PROPERTY: message_id,
        ONLY_PROPERTY: subscription,
    }
    return ServiceBusMessage(
        body,
        message_id=f"again-{uuid.uuid4().hex}",
        content_type=letter.content_type,
        subject=letter.subject,
        correlation_id=letter.correlation_id,
        application_properties=properties,
    )


def id_of(message: ServiceBusReceivedMessage) -> str | None:
    """None if whoever sent it gave it none."""
    given = _properties(message).get(ID_PROPERTY)
    return str(given) if given else message.message_id


def only_for(message: ServiceBusReceivedMessage) -> str | None:
    value = _properties(message).get(ONLY_PROPERTY)
    return None if value is None else str(value)


def properties_of(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    return {name: value for name, value in _properties(message).items() if name not in _OWN}


def body_of(message: ServiceBusReceivedMessage) -> bytes | None:
    """None if the body is no data, as that of another program's message may be."""
    if message.body_type is not AmqpMessageBodyType.DATA:
        return None
    return b"".join(message.body)


def instant_of(moment: datetime | None) -> Instant:
    return 0 if moment is None else from_datetime(moment)


def _properties(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Names and strings arrive as bytes."""
    given: Mapping[Any, Any] = message.application_properties or {}
    return {_text(name): _text(value) if isinstance(value, bytes) else value for name, value in given.items()}


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _datetime(instant: Instant | None) -> datetime | None:
    return None if instant is None else datetime.fromtimestamp(instant / 1000, UTC)
