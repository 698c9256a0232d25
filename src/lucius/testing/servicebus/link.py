"""Links: one direction of messages between a client and an address, with its credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from lucius.testing.servicebus.performatives import (
    ROLE_RECEIVER,
    Accepted,
    AmqpError,
    Disposition,
    Flow,
    Rejected,
    Transfer,
)
from lucius.testing.servicebus.refusals import Refusal, message_lock_lost, session_lock_lost, too_large
from lucius.testing.servicebus.types import Symbol

if TYPE_CHECKING:
    from lucius.testing.servicebus.amqp_session import AmqpSession
    from lucius.testing.servicebus.broker import Broker
    from lucius.testing.servicebus.queue import MessageQueue
    from lucius.testing.servicebus.stored import Stored

CREDIT = 1_000
"""What a sending client is given, again and again as it uses half of it."""
RESPONSES_MAX = 1_000
"""Answers that wait for a client's credit."""
SERIAL = 2**32


class Link:
    def __init__(self, session: AmqpSession, handle: int, name: str, path: str) -> None:
        self.session = session
        self.handle = handle
        self.name = name
        self.path = path

    def detached(self) -> None:
        """Called once, when the link is gone for whatever reason."""

    def on_flow(self, flow: Flow) -> None:
        """The client's side of the link's credit."""


class IncomingLink(Link):
    """The client sends. `take` keeps a message, or raises a refusal; it returns None if it will not be answered."""

    def __init__(
        self,
        session: AmqpSession,
        handle: int,
        name: str,
        path: str,
        message_bytes_max: int,
        take: Callable[[bytes, int], Accepted | None],
    ) -> None:
        super().__init__(session, handle, name, path)
        self.message_bytes_max = message_bytes_max
        self._take = take
        self._received = 0
        self._credit = 0
        self._payload = bytearray()
        """What has arrived of a message, up to the limit."""
        self._size = 0
        self._first: Transfer | None = None

    def grant(self, delivery_count: int) -> None:
        self._received = delivery_count
        self._credit = CREDIT
        self.session.send_flow(handle=self.handle, delivery_count=self._received, link_credit=self._credit)

    def on_flow(self, flow: Flow) -> None:
        if flow.echo:
            self.session.send_flow(handle=self.handle, delivery_count=self._received, link_credit=self._credit)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        if self._first is None:
            self._first = transfer
        if transfer.aborted:
            self._start_anew()
            return
        self._size += len(payload)
        if self._size <= self.message_bytes_max:
            self._payload += payload
        if transfer.more:
            return
        first, raw, size = self._first, bytes(self._payload), self._size
        self._start_anew()
        self._received = (self._received + 1) % SERIAL
        self._credit -= 1
        state = self._outcome(raw, size, first.message_format or 0)
        if state is not None and not (first.settled or transfer.settled) and first.delivery_id is not None:
            answer = Disposition(role=ROLE_RECEIVER, first=first.delivery_id, settled=True, state=state)
            self.session.send(answer)
        if self._credit <= CREDIT // 2:
            self._credit = CREDIT
            self.session.send_flow(handle=self.handle, delivery_count=self._received, link_credit=self._credit)

    def _start_anew(self) -> None:
        self._first = None
        self._payload.clear()
        self._size = 0

    def _outcome(self, raw: bytes, size: int, message_format: int) -> Accepted | Rejected | None:
        try:
            if size > self.message_bytes_max:
                raise too_large(size, self.message_bytes_max)
            return self._take(raw, message_format)
        except Refusal as refusal:
            return Rejected(error=refusal_error(refusal))


class OutgoingLink(Link):
    """The client receives, as far as its credit goes."""

    def __init__(self, session: AmqpSession, handle: int, name: str, path: str) -> None:
        super().__init__(session, handle, name, path)
        self.credit = 0
        self._sent = 0

    def on_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            counted = self._sent if flow.delivery_count is None else flow.delivery_count
            self.credit = max(0, _serial_difference(counted + flow.link_credit, self._sent))
        self.credit_changed()
        if flow.drain:
            self._sent = (self._sent + self.credit) % SERIAL
            self.credit = 0
        if flow.drain or flow.echo:
            self.session.send_flow(
                handle=self.handle, delivery_count=self._sent, link_credit=self.credit, drain=flow.drain
            )

    def credit_changed(self) -> None:
        """Sends what can be sent now."""

    def send_message(self, payload: bytes, tag: bytes, settled: bool) -> int:
        """Uses up one credit; returns the delivery's id."""
        self.credit -= 1
        self._sent = (self._sent + 1) % SERIAL
        return self.session.send_transfer(self.handle, payload, tag, settled)


def _serial_difference(left: int, right: int) -> int:
    """Serial numbers wrap at 32 bits."""
    difference = (left - right) % SERIAL
    return difference - SERIAL if difference >= SERIAL // 2 else difference


class ResponseLink(OutgoingLink):
    """Answers of `$cbs` and `$management`."""

    def __init__(self, session: AmqpSession, handle: int, name: str, path: str, reply_to: str | None) -> None:
        super().__init__(session, handle, name, path)
        self.reply_to = reply_to
        self._waiting: deque[bytes] = deque(maxlen=RESPONSES_MAX)
        self._number = 0

    def respond(self, payload: bytes) -> None:
        self._waiting.append(payload)
        self.credit_changed()

    def credit_changed(self) -> None:
        while self._waiting and self.credit > 0:
            self._number += 1
            self.send_message(self._waiting.popleft(), self._number.to_bytes(8, "big"), settled=True)


class ReceiverLink(OutgoingLink):
    """A receiver of a queue, a subscription or dead letters; the broker's `Consumer`."""

    def __init__(
        self, session: AmqpSession, handle: int, name: str, queue: MessageQueue, broker: Broker, deletes: bool
    ) -> None:
        super().__init__(session, handle, name, queue.path)
        self.queue = queue
        self.deletes = deletes
        self.session_id: str | None = None
        self._broker = broker
        self._is_gone = False

    def credit_changed(self) -> None:
        self._broker.pump(self.queue)

    def can_take(self) -> bool:
        return self.credit > 0 and not self._is_gone and not self.session.is_congested

    def deliver(self, stored: Stored) -> None:
        if self.deletes or stored.token is None:
            self.send_message(stored.encoded(), b"\x00" * 16, settled=True)
            return
        until = stored.locked_until
        if until is None and self.session_id is not None:
            until = self.queue.sessions.locked_until(self.session_id, self._broker.clock())
        # The tag is the lock token as .NET writes it: clients read it back as a UUID.
        delivery_id = self.send_message(stored.encoded(until), stored.token.bytes_le, settled=False)
        self.session.unsettled[delivery_id] = (self, stored.token)

    def lose_session(self) -> None:
        self.session.detach(self, session_lock_lost(self.session_id or ""))

    def detached(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._broker.remove(self, self.queue)

    def settle(self, token: UUID, settlement: Any) -> None:
        """Carries out what a disposition asks for; raises a refusal if the lock is lost."""
        stored = self.queue.locked(token)
        if stored is None:
            raise session_lock_lost(self.session_id or "") if self._lost_session() else message_lock_lost()
        outcome, changes, reason = settlement(stored.message)
        self._broker.settle(self.queue, token, outcome, changes, reason)

    def _lost_session(self) -> bool:
        now = self._broker.clock()
        return self.session_id is not None and not self.queue.sessions.holds(self.session_id, self, now)


def refusal_error(refusal: Refusal) -> AmqpError:
    return AmqpError(condition=Symbol(refusal.condition), description=refusal.description)
