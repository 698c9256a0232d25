"""AMQP sessions: links by handle, deliveries by id, and the windows of both sides."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from uuid import UUID

from lucius.testing.servicebus.codec import DecodeError
from lucius.testing.servicebus.dispositions import echo_of, settlement_of
from lucius.testing.servicebus.faults import Fault
from lucius.testing.servicebus.link import IncomingLink, Link, ReceiverLink, refusal_error
from lucius.testing.servicebus.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    Flow,
    Rejected,
    Transfer,
    read,
)
from lucius.testing.servicebus.refusals import Refusal, message_lock_lost
from lucius.testing.servicebus.types import Described

if TYPE_CHECKING:
    from lucius.testing.servicebus.connection import Connection

WINDOW = 5_000
HANDLE_MAX = 255
SERIAL = 2**32
FRAME_OVERHEAD = 512
"""Room for a transfer's own fields in a frame."""
DISPOSITIONS_MAX = 1_000
"""Unknown deliveries of one disposition that are answered each by itself."""


class AmqpSession:
    def __init__(self, connection: Connection, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.links: dict[int, Link] = {}
        self.unsettled: dict[int, tuple[ReceiverLink, UUID]] = {}
        self._next_delivery_id = 1
        self._next_outgoing_id = 1
        self._next_incoming_id = begin.next_outgoing_id
        self._incoming_window = WINDOW
        self._remote_window = begin.incoming_window
        self._waiting: deque[bytes] = deque()
        """Transfers that wait until the client's window opens."""

    def begun(self) -> Begin:
        return Begin(
            remote_channel=self.channel,
            next_outgoing_id=self._next_outgoing_id,
            incoming_window=WINDOW,
            outgoing_window=WINDOW,
            handle_max=HANDLE_MAX,
        )

    @property
    def is_congested(self) -> bool:
        return bool(self._waiting) or self.connection.is_congested

    # --- Out ---------------------------------------------------------------------------------------------------------

    def send(self, performative: Composite) -> None:
        self.connection.send(self.channel, performative.encoded())

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool | None = None,
    ) -> None:
        self._incoming_window = WINDOW
        flow = Flow(
            next_incoming_id=self._next_incoming_id,
            incoming_window=WINDOW,
            next_outgoing_id=self._next_outgoing_id,
            outgoing_window=WINDOW,
            handle=handle,
            delivery_count=delivery_count,
            link_credit=link_credit,
            drain=drain,
        )
        self.send(flow)

    def send_transfer(self, handle: int, payload: bytes, tag: bytes, settled: bool) -> int:
        delivery_id = self._next_delivery_id
        self._next_delivery_id = (delivery_id + 1) % SERIAL
        room = self.connection.frame_bytes_max - FRAME_OVERHEAD
        for start in range(0, len(payload), room):
            transfer = Transfer(
                handle=handle,
                delivery_id=delivery_id,
                delivery_tag=tag,
                message_format=0,
                settled=settled,
                more=start + room < len(payload),
            )
            self._waiting.append(transfer.encoded() + payload[start : start + room])
        self._send_waiting()
        return delivery_id

    def _send_waiting(self) -> None:
        while self._waiting and self._remote_window > 0:
            self._remote_window -= 1
            self._next_outgoing_id = (self._next_outgoing_id + 1) % SERIAL
            self.connection.send(self.channel, self._waiting.popleft())

    # --- In ----------------------------------------------------------------------------------------------------------

    def on_frame(self, performative: Composite, payload: bytes) -> None:
        if isinstance(performative, Attach):
            self._on_attach(performative)
        elif isinstance(performative, Flow):
            self._on_flow(performative)
        elif isinstance(performative, Transfer):
            self._on_transfer(performative, payload)
        elif isinstance(performative, Disposition):
            self._on_disposition(performative)
        elif isinstance(performative, Detach):
            self._on_detach(performative)
        else:
            raise DecodeError(f"{type(performative).__name__} was not expected on a session.")

    def _on_attach(self, attach: Attach) -> None:
        if attach.handle > HANDLE_MAX or attach.handle in self.links:
            raise DecodeError(f"The handle {attach.handle} is in use, or above the maximum of {HANDLE_MAX}.")
        self.connection.attacher.attach(self, attach)

    def _on_flow(self, flow: Flow) -> None:
        known = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        self._remote_window = (known + flow.incoming_window - self._next_outgoing_id) % SERIAL
        if self._remote_window >= SERIAL // 2:
            self._remote_window = 0
        self._send_waiting()
        if flow.handle is None:
            self.connection.resume(self)
            if flow.echo:
                self.send_flow()
            return
        link = self.links.get(flow.handle)
        if link is not None:
            link.on_flow(flow)

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) % SERIAL
        self._incoming_window -= 1
        link = self.links.get(transfer.handle)
        if isinstance(link, IncomingLink):
            link.on_transfer(transfer, payload)
        if self._incoming_window <= WINDOW // 2:
            self.send_flow()

    def _on_disposition(self, disposition: Disposition) -> None:
        if disposition.role is not ROLE_RECEIVER or disposition.state is None:
            return
        state = read(disposition.state) if isinstance(disposition.state, Described) else disposition.state
        last = disposition.first if disposition.last is None else disposition.last
        known = [delivery_id for delivery_id in self.unsettled if disposition.first <= delivery_id <= last]
        for delivery_id in known:
            self._settle(delivery_id, state, bool(disposition.settled))
        if not disposition.settled and not known and last - disposition.first < DISPOSITIONS_MAX:
            for delivery_id in range(disposition.first, last + 1):
                self._answer(delivery_id, Rejected(error=refusal_error(message_lock_lost())))

    def _settle(self, delivery_id: int, state: Composite, settled: bool) -> None:
        link, token = self.unsettled[delivery_id]
        faults = self.connection.faults
        if faults.strikes(Fault.LOSE_DISPOSITION, link.path):
            return
        del self.unsettled[delivery_id]
        answer: Composite = echo_of(state)
        try:
            link.settle(token, settlement_of(state))
        except Refusal as refusal:
            answer = Rejected(error=refusal_error(refusal))
        if not settled and not faults.strikes(Fault.FORGET_DISPOSITION, link.path):
            self._answer(delivery_id, answer)

    def _answer(self, delivery_id: int, state: Composite) -> None:
        answer = Disposition(role=ROLE_SENDER, first=delivery_id, last=delivery_id, settled=True, state=state)
        self.send(answer)

    def _on_detach(self, detach: Detach) -> None:
        link = self.links.get(detach.handle)
        if link is not None:
            self._forget(link)
            self.send(Detach(handle=detach.handle, closed=True))

    # --- Ends --------------------------------------------------------------------------------------------------------

    def detach(self, link: Link, refusal: Refusal) -> None:
        """The server's own doing, with its reason."""
        if self.links.get(link.handle) is link:
            self._forget(link)
            self.send(Detach(handle=link.handle, closed=True, error=refusal_error(refusal)))

    def _forget(self, link: Link) -> None:
        del self.links[link.handle]
        self.unsettled = {key: held for key, held in self.unsettled.items() if held[0] is not link}
        link.detached()

    def end(self) -> None:
        for link in list(self.links.values()):
            self._forget(link)
