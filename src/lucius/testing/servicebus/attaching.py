"""What an attach leads to: the address says which kind of link, the settings whether it is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lucius.testing.servicebus.broker import Broker, SessionRequest
from lucius.testing.servicebus.codec import DecodeError
from lucius.testing.servicebus.faults import Fault
from lucius.testing.servicebus.link import IncomingLink, Link, ReceiverLink, ResponseLink, refusal_error
from lucius.testing.servicebus.message import parse_transfer
from lucius.testing.servicebus.namespace import path_of
from lucius.testing.servicebus.performatives import (
    CLIENT_RECEIVES,
    Accepted,
    Attach,
    Detach,
    Source,
    Target,
    read,
)
from lucius.testing.servicebus.refusals import Refusal, argument_error, not_allowed, not_implemented
from lucius.testing.servicebus.requests import CBS, MANAGEMENT, Requests
from lucius.testing.servicebus.tokens import Authorization
from lucius.testing.servicebus.types import Described, Symbol, UInt

if TYPE_CHECKING:
    from lucius.testing.servicebus.amqp_session import AmqpSession

SETTLED = 1
"""The sender's settle mode of a client that receives and deletes."""
SESSION_FILTER = "com.microsoft:session-filter"
TICKS_EPOCH, TICKS_PER_SECOND = 621_355_968_000_000_000, 10_000_000
SESSION_WAIT_SECONDS = 60.0
REQUEST_BYTES_MAX = 1024 * 1024


class Attacher:
    """Makes the links of one connection."""

    def __init__(
        self, broker: Broker, authorization: Authorization, requests: Requests, message_bytes_max: int
    ) -> None:
        self._broker = broker
        self._authorization = authorization
        self._requests = requests
        self._message_bytes_max = message_bytes_max

    def attach(self, session: AmqpSession, attach: Attach) -> None:
        try:
            self._attach(session, attach)
        except Refusal as refusal:
            self._refuse(session, attach, refusal)

    def _attach(self, session: AmqpSession, attach: Attach) -> None:
        source, target = _terminus(attach.source, Source), _terminus(attach.target, Target)
        end = source if attach.role is CLIENT_RECEIVES else target
        if end is None or not isinstance(end.address, str):
            raise not_implemented("A link needs the address of an entity. Transactions are not supported.")
        path = path_of(end.address)
        if path == CBS or path.endswith(MANAGEMENT):
            self._attach_requests(session, attach, path, target)
            return
        self._authorization.check(path)
        self._broker.faults.check(path)
        if attach.role is CLIENT_RECEIVES and isinstance(source, Source):
            self._attach_receiver(session, attach, source)
        else:
            self._attach_sender(session, attach, path)

    # --- Kinds of links ----------------------------------------------------------------------------------------------

    def _attach_requests(self, session: AmqpSession, attach: Attach, path: str, target: Any) -> None:
        if path != CBS:
            self._authorization.check(path.removesuffix(MANAGEMENT))
            self._requests.check_entity(path)
        link: Link
        if attach.role is CLIENT_RECEIVES:
            link = ResponseLink(session, attach.handle, attach.name, path, target.address if target else None)
        else:

            def take(raw: bytes, message_format: int) -> Accepted:
                self._requests.handle(session, path, raw)
                return Accepted()

            link = IncomingLink(session, attach.handle, attach.name, path, REQUEST_BYTES_MAX, take)
        self._accept(session, attach, link, REQUEST_BYTES_MAX)

    def _attach_sender(self, session: AmqpSession, attach: Attach, path: str) -> None:
        entity = self._broker.namespace.entity(path)

        def take(raw: bytes, message_format: int) -> Accepted | None:
            self._broker.faults.check(path)
            try:
                messages = parse_transfer(raw, message_format)
            except DecodeError as error:
                raise argument_error(f"The message cannot be read. {error}") from error
            self._broker.publish(path, messages)
            return None if self._broker.faults.strikes(Fault.FORGET_SEND, path) else Accepted()

        link = IncomingLink(session, attach.handle, attach.name, entity.name, self._message_bytes_max, take)
        self._accept(session, attach, link, self._message_bytes_max)

    def _attach_receiver(self, session: AmqpSession, attach: Attach, source: Source) -> None:
        queue = self._broker.namespace.queue(str(source.address))
        deletes = attach.snd_settle_mode == SETTLED
        link = ReceiverLink(session, attach.handle, attach.name, queue, self._broker, deletes)
        filters = {str(key): value for key, value in (source.filter or {}).items()}
        if SESSION_FILTER not in filters:
            if queue.settings.requires_session:
                raise not_allowed(f"'{queue.path}' requires sessions: receive with a session id, or from the next one.")
            self._accept(session, attach, link)
            self._broker.add(link, queue)
            return
        wanted = filters[SESSION_FILTER]
        wanted = wanted.value if isinstance(wanted, Described) else wanted
        session.links[attach.handle] = link

        def answer(result: str | Refusal) -> None:
            if isinstance(result, Refusal):
                session.links.pop(attach.handle, None)
                self._refuse(session, attach, result)
                return
            link.session_id = result
            self._accept_session(session, attach, source, link)
            self._broker.add(link, queue)

        deadline = self._broker.clock() + _wait_seconds(attach)
        try:
            request = SessionRequest(link, deadline, answer)
            self._broker.accept_session(queue, request, None if wanted is None else str(wanted))
        except Refusal:
            del session.links[attach.handle]
            raise

    # --- Answers -----------------------------------------------------------------------------------------------------

    def _accept(self, session: AmqpSession, attach: Attach, link: Link, message_bytes_max: int | None = None) -> None:
        session.links[attach.handle] = link
        answer = _answer(attach, attach.source, attach.target)
        answer.max_message_size = message_bytes_max
        session.send(answer)
        if isinstance(link, IncomingLink):
            link.grant(attach.initial_delivery_count or 0)

    def _accept_session(self, session: AmqpSession, attach: Attach, source: Source, link: ReceiverLink) -> None:
        until = link.queue.sessions.locked_until(link.session_id or "", self._broker.clock())
        held = Source(address=source.address, filter={Symbol(SESSION_FILTER): link.session_id})
        answer = _answer(attach, held, attach.target)
        ticks = TICKS_EPOCH + round(until * TICKS_PER_SECOND)
        answer.properties = {Symbol("com.microsoft:locked-until-utc"): ticks}
        session.send(answer)

    def _refuse(self, session: AmqpSession, attach: Attach, refusal: Refusal) -> None:
        """As the standard has it: an attach without the server's end, then a detach with the reason."""
        session.send(_answer(attach, None, None))
        session.send(Detach(handle=attach.handle, closed=True, error=refusal_error(refusal)))


def _answer(attach: Attach, source: Any, target: Any) -> Attach:
    return Attach(
        name=attach.name,
        handle=attach.handle,
        role=not attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        source=source,
        target=target,
        initial_delivery_count=0 if attach.role is CLIENT_RECEIVES else None,
    )


def _terminus(value: Any, kind: type) -> Any:
    if value is None:
        return None
    found = read(value) if isinstance(value, Described) and value.descriptor in (Source.CODE, Target.CODE) else None
    if not isinstance(found, kind):
        raise not_implemented("Only plain sources and targets are supported; transactions are not.")
    return found


def _wait_seconds(attach: Attach) -> float:
    given = {str(key): value for key, value in (attach.properties or {}).items()}.get("com.microsoft:timeout")
    return given / 1000 if isinstance(given, int | UInt) else SESSION_WAIT_SECONDS
