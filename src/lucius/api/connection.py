"""One HTTP connection, with the limits and deadlines that uvicorn leaves out.

Every byte of a request belongs to its header, to its body or to the framing around the body, and each has a limit and
a deadline. `check` enforces deadlines, twice a second for all connections, because a timer for each request would cost
more than the rest of this module. Requests rejected here are answered with a problem, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from enum import IntEnum
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, cast

import httptools
from starlette.responses import PlainTextResponse, Response
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lucius.api.admission import Admission, Peer
from lucius.api.one_write import OneWrite
from lucius.api.problems import problem
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

BODY_BYTES_FREE = 16_384
"""Body size that needs no reserved memory, so that small requests are served while large ones are rejected."""
PIPELINED_MAX = 16
"""Pipelined requests that may wait on one connection."""
LINGER_SECONDS = 2.0
"""How long a rejected client may take to read its answer; an immediate close could discard the answer."""
SERVED_BY_RESERVE = (b"/healthz", b"/readyz", b"/v1/callbacks", b"/v1/worker-results")
LINE_BYTES = 4
"""Colon, space and line end of a header."""


class Part(IntEnum):
    """The part of a request that is being received."""

    NOTHING = 0
    HEADER = 1
    BODY = 2


UNREAD = Part.BODY + 1
"""In the order of giving way, connections that do not read their answer come after those that are being received."""


class Connection(HttpToolsProtocol):
    peer: Peer

    def __init__(
        self,
        config: Config,
        server_state: Admission,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._admission = server_state
        self._settings = server_state.settings
        self.headers = []
        self._answered: RequestResponseCycle | None = None
        self._is_reserved = False
        self._is_refused = False
        self._receiving = Part.NOTHING
        self._timed = Part.NOTHING
        self._deadline = inf
        self._waiting_since = 0.0
        self._chunk_bytes = 0
        self._other_bytes = 0
        """Received since the request began or since its last byte of body: header, framing, trailers."""
        self._body_bytes = 0
        self._borrowed = 0
        self._unsent = 0
        self._sent_at = 0.0

    # --- The connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self.peer, self._is_reserved = self._admission.enter(self, self.client[0] if self.client else "")
        self._wait(self._settings.connect_seconds)
        if self._admission.is_full:
            self._admission.leave(self, self.peer)
            self._refuse(self._no_room())
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._mark_disconnected()
        super().connection_lost(exc)
        self._repay()
        self._admission.leave(self, self.peer)

    def _mark_disconnected(self) -> None:
        """Mark every open request as disconnected: uvicorn does so only for the newest of pipelined requests."""
        for cycle in (self._answered, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _drop(self) -> None:
        self._mark_disconnected()
        self.transport.abort()

    def _wait(self, seconds: float) -> None:
        """Wait for the client, for at most this long."""
        self._waiting_since = self.loop.time()
        self._deadline = self._waiting_since + seconds

    # --- Receiving ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._receiving is Part.NOTHING:
            self._begin()
        self._chunk_bytes = len(data)
        self._other_bytes += self._chunk_bytes
        try:
            self.parser.feed_data(data)
            if self._receiving is not Part.NOTHING:
                self._check_incomplete()
        except httptools.HttpParserUpgrade:
            pass  # Upgrades are not supported: the request is answered as a plain one.
        except httptools.HttpParserError as error:
            self._refuse(error.__context__ if isinstance(error.__context__, LuciusError) else None)
        except LuciusError as error:
            self._refuse(error)

    def _begin(self) -> None:
        self._receiving = Part.HEADER
        self._other_bytes = 0

    def _check_incomplete(self) -> None:
        settings = self._settings
        if self._other_bytes > settings.header_bytes_max or len(self.headers) > settings.headers_max:
            raise self._header_too_large()
        if self._timed is not self._receiving:
            self._timed = self._receiving
            self._wait(settings.header_seconds if self._receiving is Part.HEADER else settings.body_seconds)

    def on_message_begin(self) -> None:
        if self._receiving is Part.NOTHING:  # Pipelined: the rest of this chunk may all be its header.
            self._begin()
            self._other_bytes = self._chunk_bytes
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        settings = self._settings
        if len(self.headers) > settings.headers_max:
            raise self._header_too_large()
        if self._other_bytes > settings.header_bytes_max and self._header_bytes() > settings.header_bytes_max:
            raise self._header_too_large()  # The sum is needed only if enough bytes were received.
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ConnectionAbortedError(f"more than {PIPELINED_MAX} requests are pipelined on one connection")
        if self._is_reserved and not self.url.startswith(SERVED_BY_RESERVE):
            raise self._no_room()
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, OneWrite(self.transport))
        if self._is_reserved or self._admission.is_leaving:
            self.cycle.keep_alive = False
        self._receiving = Part.BODY
        self.headers = []  # Collects trailers, which are not used.

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + LINE_BYTES for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        self._other_bytes = 0
        if not self.cycle.response_complete:
            self._body_bytes += len(body)
            if self._body_bytes - BODY_BYTES_FREE > self._borrowed:
                needed = self._body_bytes - BODY_BYTES_FREE - self._borrowed
                self._admission.borrow(self.peer, needed, self._borrowed)
                self._borrowed += needed
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._receiving = self._timed = Part.NOTHING
        if self.cycle.response_complete:
            self._wait(self._settings.keep_alive_seconds)
        else:
            self._deadline = inf

    # --- Answering ---------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle

        def begin() -> None:
            if not cycle.disconnected:
                super(Connection, self)._start_asgi_task(cycle, app)

        self._admission.intake.start(lambda: self._sender(cycle), begin)

    def _sender(self, cycle: RequestResponseCycle) -> str:
        """The sender of a request, as far as it is known before the request is processed."""
        if cycle.scope["raw_path"].startswith(SERVED_BY_RESERVE):
            return "reserve"
        authorization = next((value for name, value in cycle.scope["headers"] if name == b"authorization"), None)
        known = None if authorization is None else self._admission.known(authorization.decode("latin-1"))
        return f"address {self.peer.address}" if known is None else known.name

    def on_response_complete(self) -> None:
        """Like uvicorn's, without its timer for idle connections: `check` enforces their deadline."""
        self.server_state.total_requests += 1
        if self._answered is not None:
            cast(OneWrite, self._answered.transport).flush()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._body_bytes:
            self._repay()
        if self._receiving is Part.NOTHING:
            self._wait(self._settings.keep_alive_seconds)

    def close_after_answer(self) -> None:
        if self._is_answering:
            self.cycle.keep_alive = False

    def _repay(self) -> None:
        if self._borrowed:
            self._admission.repay(self.peer, self._borrowed)
        self._borrowed = self._body_bytes = 0

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, error: LuciusError | None) -> None:
        """Answer the request being received with an error, or `400` in plain text, and close the connection."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._admission.refused["MALFORMED" if error is None else error.code] += 1
        is_awaited = not self._is_answering
        if self._receiving is Part.BODY:
            is_awaited = self._is_answering and not self.cycle.response_started and not self.pipeline
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
        if not is_awaited:  # The client awaits another answer and would mistake this one for it.
            self.transport.close()
            return
        answer = PlainTextResponse("Invalid HTTP request.", 400)
        self.transport.write(_written(answer if error is None else problem(error, self._admission.new_id())))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._wait(LINGER_SECONDS)

    def _header_too_large(self) -> LuciusError:
        settings = self._settings
        detail = (
            f"a header may have at most {settings.header_bytes_max} bytes, including the first line, and "
            f"{settings.headers_max} fields; the same holds for the trailers of a body"
        )
        return CallerError.of("HEADER_TOO_LARGE", detail)

    def _no_room(self) -> LuciusError:
        detail = "all connections of this server, or of your address, are in use; retry later"
        return InfrastructureError.unavailable(detail)

    # --- Waiting -----------------------------------------------------------------------------------------------------

    @property
    def patience(self) -> tuple[int, float] | None:
        """What the server waits for from this client and since when, sorted by giving way; None if it does not wait."""
        if self._receiving is Part.BODY and not self.pipeline:
            return Part.BODY, self._waiting_since
        if not self._is_answering:
            return self._receiving, self._waiting_since
        return (UNREAD, self._sent_at) if self.flow.write_paused else None

    def give_way(self) -> None:
        self._admission.leave(self, self.peer)
        if self.transport.get_write_buffer_size():
            self._drop()  # Closing would wait for a client that does not read.
            return
        if self._receiving is not Part.NOTHING:
            self._refuse(self._no_room())
        self.transport.close()

    def check(self, now: float) -> None:
        """Close the connection if its deadline has passed. While the server has paused reading, there is none."""
        self._check_unsent(now)
        if now < self._deadline or self.flow.read_paused or self.transport.is_closing():
            return
        if self._is_refused or self._receiving is Part.NOTHING:
            self.transport.close()
            return
        part = "header" if self._receiving is Part.HEADER else "body"
        seconds = self._settings.header_seconds if part == "header" else self._settings.body_seconds
        detail = f"the {part} of the request was not complete after {seconds:g} s"
        self._refuse(CallerError.of("REQUEST_TIMEOUT", detail))

    def _check_unsent(self, now: float) -> None:
        """Drop a client that does not read at all. A client that reads slowly may stay."""
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            unsent += _unacknowledged(self.transport)
            if not self._unsent or unsent < self._unsent:
                self._sent_at = now
            elif now - self._sent_at > self._settings.write_seconds:
                self._drop()
        self._unsent = unsent


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Bytes in the system's send buffer that the client has not received: they show a slow reader's progress."""
    try:
        found = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0  # Just closed, or not supported by the system: count only our own buffer.
    return int.from_bytes(found, sys.byteorder)


def _written(response: Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"connection: close", b"", b""]) + bytes(response.body)
