"""The operations of an entity's `$management`: locks, deferred and scheduled messages, peeking, session state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from lucius.testing.servicebus.broker import Broker
from lucius.testing.servicebus.codec import DecodeError
from lucius.testing.servicebus.dispositions import changed
from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.refusals import argument_error, message_lock_lost, not_implemented
from lucius.testing.servicebus.stored import Outcome
from lucius.testing.servicebus.types import Array, Timestamp

PREFIX = "com.microsoft:"
TOKENS_MAX = 4_500
PEEK_BYTES_MAX = 1024 * 1024
RECEIVE_AND_DELETE = 0
"""The receiver's settle mode in a request for deferred messages."""

Answer = dict[str, Any] | None
"""None is 'no content'."""


class Management:
    """The `$management` of one entity, for one request."""

    def __init__(self, broker: Broker, entity: str) -> None:
        self._broker = broker
        self._entity = entity
        self._body: dict[str, Any] = {}

    def perform(self, operation: str, body: Any) -> Answer:
        perform = self._operations().get(operation.removeprefix(PREFIX))
        if perform is None:
            raise not_implemented(f"The test server has no operation '{operation}'.")
        if not isinstance(body, dict):
            raise argument_error(f"The body of '{operation}' must be a map.")
        self._body = {str(key): value for key, value in body.items()}
        return perform()

    def _operations(self) -> dict[str, Callable[[], Answer]]:
        return {
            "renew-lock": self._renew_lock,
            "update-disposition": self._update_disposition,
            "receive-by-sequence-number": self._receive_deferred,
            "peek-message": self._peek,
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel_scheduled,
            "get-session-state": self._get_session_state,
            "set-session-state": self._set_session_state,
            "renew-session-lock": self._renew_session_lock,
            "get-message-sessions": self._list_sessions,
        }

    # --- Locks -------------------------------------------------------------------------------------------------------

    def _renew_lock(self) -> Answer:
        expirations = self._queue.renew(self._tokens(), self._now)
        return {"expirations": Array(Timestamp.of(until) for until in expirations)}

    def _update_disposition(self) -> Answer:
        status = self._text("disposition-status")
        try:
            outcome = Outcome(status)
        except ValueError as error:
            raise argument_error(f"There is no disposition '{status}'.") from error
        reason = (str(self._body.get("deadletter-reason") or ""), str(self._body.get("deadletter-description") or ""))
        for token in self._tokens():
            stored = self._queue.locked(token)
            if stored is None:
                raise message_lock_lost()
            changes = changed(stored.message, self._body.get("properties-to-modify"))
            self._broker.settle(self._queue, token, outcome, changes, reason)
        return {}

    # --- Messages ----------------------------------------------------------------------------------------------------

    def _receive_deferred(self) -> Answer:
        deletes = self._body.get("receiver-settle-mode") == RECEIVE_AND_DELETE
        session_id = self._session_or_none()
        found = self._queue.receive_deferred(self._numbers(), self._now, session_id, deletes)
        messages = []
        for stored in found:
            until = stored.locked_until
            if until is None and session_id is not None and not deletes:
                until = self._queue.sessions.locked_until(session_id, self._now)
            answer: dict[str, Any] = {"message": stored.encoded(until)}
            if stored.token is not None:
                answer["lock-token"] = stored.token
            messages.append(answer)
        return {"messages": messages}

    def _peek(self) -> Answer:
        start, count = self._number("from-sequence-number"), self._number("message-count")
        messages: list[dict[str, Any]] = []
        size = 0
        for stored in self._queue.peek(start, count, self._now, self._session_or_none()):
            payload = stored.encoded()
            size += len(payload)
            if messages and size > PEEK_BYTES_MAX:
                break
            messages.append({"message": payload})
        return {"messages": messages} if messages else None

    def _schedule(self) -> Answer:
        given = self._body.get("messages")
        if not isinstance(given, list) or not given:
            raise argument_error("'messages' must be a list of messages.")
        messages = [self._message(item) for item in given]
        if any(message.scheduled_at is None for message in messages):
            raise argument_error("A message to schedule needs the annotation x-opt-scheduled-enqueue-time.")
        return {"sequence-numbers": Array(self._broker.publish(self._entity, messages))}

    def _cancel_scheduled(self) -> Answer:
        self._broker.namespace.entity(self._entity).cancel_scheduled(self._numbers())
        return {}

    def _message(self, item: Any) -> Message:
        raw = item.get("message") if isinstance(item, dict) else None
        if not isinstance(raw, bytes):
            raise argument_error("Each of 'messages' must have 'message', the encoded message.")
        try:
            return Message.parse(raw)
        except DecodeError as error:
            raise argument_error(f"A message cannot be read. {error}") from error

    # --- Sessions ----------------------------------------------------------------------------------------------------

    def _get_session_state(self) -> Answer:
        return {"session-state": self._queue.sessions.state(self._text("session-id"))}

    def _set_session_state(self) -> Answer:
        state = self._body.get("session-state")
        if state is not None and not isinstance(state, bytes):
            raise argument_error("'session-state' must be binary, or null.")
        self._queue.set_session_state(self._text("session-id"), state, self._now)
        return {}

    def _renew_session_lock(self) -> Answer:
        return {"expiration": Timestamp.of(self._queue.sessions.renew(self._text("session-id"), self._now))}

    def _list_sessions(self) -> Answer:
        skip, top = self._number("skip"), self._number("top")
        found = self._queue.session_ids()[skip : skip + top]
        return {"skip": skip + len(found), "sessions-ids": Array(found)} if found else None

    # --- The request's body ------------------------------------------------------------------------------------------

    @property
    def _queue(self) -> Any:
        return self._broker.namespace.queue(self._entity)

    @property
    def _now(self) -> float:
        return self._broker.clock()

    def _text(self, name: str) -> str:
        value = self._body.get(name)
        if not isinstance(value, str):
            raise argument_error(f"'{name}' must be a string.")
        return str(value)

    def _session_or_none(self) -> str | None:
        return None if self._body.get("session-id") is None else self._text("session-id")

    def _number(self, name: str) -> int:
        value = self._body.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise argument_error(f"'{name}' must be a number, 0 or more.")
        return int(value)

    def _numbers(self) -> list[int]:
        return [int(number) for number in self._array("sequence-numbers", int)]

    def _tokens(self) -> list[UUID]:
        return self._array("lock-tokens", UUID)

    def _array(self, name: str, kind: type) -> list[Any]:
        values = self._body.get(name)
        if not isinstance(values, list) or not values or len(values) > TOKENS_MAX:
            raise argument_error(f"'{name}' must have 1 to {TOKENS_MAX} elements.")
        if not all(isinstance(value, kind) for value in values):
            raise argument_error(f"'{name}' must consist of values of the type {kind.__name__}.")
        return values
