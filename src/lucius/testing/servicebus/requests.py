"""Requests and responses over links: `$cbs` takes tokens, an entity's `$management` what has no link of its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lucius.testing.servicebus.broker import Broker
from lucius.testing.servicebus.codec import DecodeError, encode
from lucius.testing.servicebus.faults import Fault
from lucius.testing.servicebus.link import ResponseLink
from lucius.testing.servicebus.management import Management
from lucius.testing.servicebus.message import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Message,
    sections,
)
from lucius.testing.servicebus.refusals import Refusal, argument_error, not_implemented
from lucius.testing.servicebus.tokens import Authorization, TokenChecker
from lucius.testing.servicebus.types import Described, Int, Symbol, ULong

if TYPE_CHECKING:
    from lucius.testing.servicebus.amqp_session import AmqpSession

CBS = "$cbs"
MANAGEMENT = "/$management"
OK, NO_CONTENT, TOKEN_ACCEPTED = 200, 204, 202

_log = logging.getLogger(__name__)


class Requests:
    """The requests of one connection."""

    def __init__(self, broker: Broker, authorization: Authorization, tokens: TokenChecker) -> None:
        self._broker = broker
        self._authorization = authorization
        self._tokens = tokens

    def check_entity(self, path: str) -> None:
        """Raises a refusal unless the `$management` of an entity is named."""
        entity = path.removesuffix(MANAGEMENT)
        if entity not in self._broker.namespace.entities:
            self._broker.namespace.queue(entity)

    def handle(self, session: AmqpSession, path: str, raw: bytes) -> None:
        """Carries out a request and sends the response on the link that the request names."""
        try:
            request, value = Message.parse(raw), _value(raw)
        except DecodeError as error:
            raise argument_error(f"The request cannot be read. {error}") from error
        if path != CBS and self._broker.faults.strikes(Fault.FORGET_REQUEST, path.removesuffix(MANAGEMENT)):
            return
        link = _response_link(session, path, request.value_of("reply_to"))
        if link is None:
            raise argument_error("There is no link for the response: attach a receiver to the same address first.")
        link.respond(_response(request, *self._result(path, request, value), is_cbs=path == CBS))

    def _result(self, path: str, request: Message, value: Any) -> tuple[int, Any, Refusal | None]:
        operation = request.application_properties.get("operation")
        try:
            if path == CBS:
                self._put_token(request, operation, value)
                return TOKEN_ACCEPTED, None, None
            entity = path.removesuffix(MANAGEMENT)
            self._authorization.check(entity)
            self._broker.faults.check(entity)
            answer = Management(self._broker, entity).perform(str(operation), value)
            return (OK if answer is not None else NO_CONTENT), answer, None
        except Refusal as refusal:
            _log.debug("%s on %s refused: %s", operation, path, refusal.description)
            return refusal.status, None, refusal

    def _put_token(self, request: Message, operation: Any, token: Any) -> None:
        if operation != "put-token":
            raise not_implemented(f"$cbs has no operation '{operation}'.")
        given = request.application_properties
        self._tokens.check(token if isinstance(token, str) else "")
        self._authorization.allow(str(given.get("name") or ""))


def _value(raw: bytes) -> Any:
    """A request's body: one value, which some clients send as data."""
    for code, value, _ in sections(raw):
        if code == VALUE:
            return value
        if code == DATA and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if code == SEQUENCE:
            raise DecodeError("The body of a request is one value.")
    return None


def _response_link(session: AmqpSession, path: str, reply_to: Any) -> ResponseLink | None:
    found = [link for link in session.links.values() if isinstance(link, ResponseLink) and link.path == path]
    return next((link for link in found if link.reply_to == reply_to), found[0] if found else None)


def _response(request: Message, status: int, body: Any, refusal: Refusal | None, is_cbs: bool) -> bytes:
    names = ("status-code", "status-description") if is_cbs else ("statusCode", "statusDescription")
    told: dict[str, Any] = {names[0]: Int(status), names[1]: refusal.description if refusal else "OK"}
    if refusal and not is_cbs:
        told["errorCondition"] = Symbol(refusal.condition)
    properties = [None, None, None, None, None, request.message_id]
    response = encode(Described(ULong(PROPERTIES), properties)) + encode(Described(ULong(APPLICATION_PROPERTIES), told))
    return response + encode(Described(ULong(VALUE), body))
