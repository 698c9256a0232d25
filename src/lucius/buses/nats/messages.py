"""Messages as JetStream keeps them: id, properties and what else describes them in headers, the body as it is."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from nats.aio.msg import Msg

from lucius.buses.nats.connection import Headers
from lucius.domain.time import Instant, iso
from lucius.ports.bus import Message

log = logging.getLogger("lucius.bus")

ID = "Lucius-Message-Id"
PROPERTIES = "Lucius-Properties"
REASON = "Lucius-Dead-Reason"
DELIVERIES = "Lucius-Deliveries"
HAS_BODY = "Lucius-Body-Kept"
CONTENT_TYPE = "Content-Type"
SUBJECT = "Lucius-Subject"
CORRELATION_ID = "Lucius-Correlation-Id"
FOR_OTHERS = (CONTENT_TYPE, SUBJECT, CORRELATION_ID)
"""Headers that LUCIUS itself does not read. Messages of earlier versions do not have them."""


def headers_of(message_id: str, properties: Mapping[str, Any]) -> dict[str, str]:
    # Headers are one line each; ASCII JSON is one too, whatever is in it.
    return {ID: json.dumps(message_id), PROPERTIES: json.dumps(properties)}


def headers_for_others(message: Message) -> dict[str, str]:
    """What consumers that are not LUCIUS want to know."""
    headers = {CONTENT_TYPE: message.content_type}
    if message.subject:
        headers[SUBJECT] = json.dumps(message.subject)
    if message.correlation_id:
        headers[CORRELATION_ID] = json.dumps(message.correlation_id)
    return headers


def kept_for_others(headers: Headers) -> dict[str, str]:
    """The same, of a message that is moved."""
    return {name: headers[name] for name in FOR_OTHERS if name in headers}


def scheduled(headers: Headers, at: Instant, target: str) -> dict[str, str]:
    return {**headers, "Nats-Schedule": f"@at {iso(at)}", "Nats-Schedule-Target": target}


def is_ours(headers: Headers) -> bool:
    """Whether LUCIUS published a message."""
    return ID in headers


def id_in(subject: str) -> str:
    """The message id that the last word of a message's subject is made of."""
    return unquote(subject.rpartition(".")[2])


def read_properties(headers: Headers) -> dict[str, Any]:
    try:
        found = json.loads(headers[PROPERTIES])
    except (KeyError, ValueError):
        log.error("the properties of message %s on NATS cannot be read and are left out", headers.get(ID))
        return {}
    return found if isinstance(found, dict) else {}


class Pulled(NamedTuple):
    """What JetStream says about a delivery, in the subject on which it expects the acknowledgement."""

    message: Msg
    delivery_count: int
    seq: int
    stored_at: Instant

    @property
    def headers(self) -> Headers:
        return self.message.headers or {}


def read_pulled(message: Msg) -> Pulled:
    """`$JS.ACK.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<nanoseconds>.<pending>`; newer servers put a
    domain and an account before the stream."""
    count, seq, _, nanoseconds = message.reply.split(".")[-5:-1] if _is_short(message.reply) else _long(message.reply)
    return Pulled(message, int(count), int(seq), int(nanoseconds) // 1_000_000)


def _is_short(reply: str) -> bool:
    return reply.count(".") == 8


def _long(reply: str) -> list[str]:
    # $JS.ACK.<domain>.<account>.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<nanoseconds>.<pending>.<random>
    return reply.split(".")[6:10]
