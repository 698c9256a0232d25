"""One connection to NATS for everything: requests, answers of several parts, and what interrupts them.

Answers come to one inbox. When the connection breaks, everything that waits for an answer fails at once instead of
waiting for its deadline, and a new connection is made to any of the servers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoServersError, UnexpectedEOF

from lucius.buses.nats.identity import CONNECT_SECONDS, arguments, is_refusal, words_of
from lucius.buses.nats.options import NatsOptions, without_secrets
from lucius.ports.bus import BusUnavailable

log = logging.getLogger("lucius.bus")

OPEN_SECONDS = 10.0
"""How long a server may take to appear when this process starts."""
CLOSE_SECONDS = 1.0
REQUEST_SECONDS = 10.0
RECONNECT_SECONDS = 0.5
LOOK_SECONDS = 0.5
"""How often it looks whether the connection is lost, where the library does not tell: it calls nobody back when the
connection breaks while something is being sent."""
NO_RESPONDERS = "503"

Headers = Mapping[str, str]
T = TypeVar("T")


class Request(NamedTuple):
    subject: str
    payload: bytes = b""
    headers: Headers | None = None


class NoResponders(BusUnavailable):
    """Nobody takes what is sent to this subject: the stream is missing, or JetStream is off."""

    def __init__(self, location: str, subject: str) -> None:
        super().__init__(f"nobody at {location} answers {subject}")
        self.subject = subject


def answered(answer: Msg | NoResponders) -> Msg:
    if isinstance(answer, NoResponders):
        raise answer
    return answer


def status_of(message: Msg) -> str | None:
    """The status that the server answers with instead of a message."""
    if message.data or not message.headers:
        return None
    return message.headers.get("Status")


class _Slot:
    """An inbox for the answers to one request at a time. Messages of streams keep their own subject when they are
    delivered, so only the subscription tells which request they answer."""

    def __init__(self) -> None:
        self.take: Callable[[Msg | None], None] | None = None
        self.inbox = ""
        self.subscription: Subscription | None = None

    async def receive(self, message: Msg) -> None:
        if self.take is not None:
            self.take(message)


class Connection:
    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._inbox = ""
        self._number = 0
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}
        """The requests that wait for an answer; None if the connection broke."""
        self._free: list[_Slot] = []
        self._busy: set[_Slot] = set()
        self._trouble = "not connected yet"
        self._is_refused = False
        self._server = ""
        """The one that it connects to, or is connected to."""
        self._lost = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False
        self.on_connect: Callable[[], Awaitable[None]] | None = None
        """Called after connecting again; may raise `BusUnavailable`."""
        self._listeners: list[tuple[str, Callable[[Msg], Awaitable[None]]]] = []

    async def open(self) -> None:
        """Connect to one of the servers, which may be starting as well."""
        deadline = asyncio.get_running_loop().time() + OPEN_SECONDS
        while True:
            try:
                await self._connect_to_any()
                break
            except BusUnavailable:
                if self._is_refused or asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)
        self._keeping = asyncio.create_task(self._keep_connected(), name="nats connection")

    async def close(self) -> None:
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._client is not None:
            with suppress(NatsError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._client.flush()
            await _close(self._client)

    @property
    def payload_max(self) -> int:
        return self._client.max_payload if self._client is not None else 0

    @property
    def server_version(self) -> tuple[int, int]:
        version = self._connected().connected_server_version
        return version.major, version.minor

    async def listen(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> None:
        self._listeners.append((subject, receive))
        await self._connected().subscribe(subject, cb=receive)

    async def request(self, subject: str, payload: bytes = b"", headers: Headers | None = None) -> Msg:
        """The answer to a request. Raises `NoResponders` and `BusUnavailable`."""
        return answered((await self.request_all([Request(subject, payload, headers)]))[0])

    async def request_all(self, requests: Sequence[Request]) -> list[Msg | NoResponders]:
        """The answers to requests, which are sent before the first answer is waited for, without a task for each.
        Raises `BusUnavailable`, also if only one has no answer in time."""
        client, loop = self._connected(), asyncio.get_running_loop()
        waiting: dict[str, asyncio.Future[Msg | None]] = {}
        try:
            for one in requests:
                self._number += 1
                key = f"{self._inbox}.{self._number}"
                waiting[key] = self._waiting[key] = loop.create_future()
                headers = None if one.headers is None else dict(one.headers)
                await client.publish(one.subject, one.payload, reply=key, headers=headers)
            async with asyncio.timeout(REQUEST_SECONDS):
                answers = [await answered for answered in waiting.values()]
        except TimeoutError as error:
            raise self._silent(requests[0].subject, REQUEST_SECONDS) from error
        except (NatsError, OSError) as error:
            raise self._unavailable(error) from error
        finally:
            for key in waiting:
                self._waiting.pop(key, None)
        return [self._answer(one, answer) for one, answer in zip(requests, answers, strict=True)]

    def _answer(self, request: Request, answer: Msg | None) -> Msg | NoResponders:
        if answer is None:
            raise self._unavailable()
        nobody = status_of(answer) == NO_RESPONDERS
        return NoResponders(self._options.location, request.subject) if nobody else answer

    async def collect(
        self, subject: str, payload: bytes, limit: int, seconds: float = REQUEST_SECONDS
    ) -> tuple[list[Msg], str | None]:
        """Up to so many messages that answer one request, and the status that ended them before."""
        found: list[Msg] = []
        ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def take(message: Msg | None) -> None:
            if ended.done():
                return
            if message is None:
                ended.set_exception(self._unavailable())
                return
            status = status_of(message)
            if status is not None:
                ended.set_result(status)
                return
            found.append(message)
            if len(found) >= limit:
                ended.set_result(None)

        client = self._connected()
        slot = self._free.pop() if self._free else await self._new_slot(client)
        slot.take = take
        self._busy.add(slot)
        try:
            status = await self._until(client.publish(subject, payload, reply=slot.inbox), subject, ended, seconds)
        except BaseException:
            slot.take = None  # What still comes is for nobody, so this inbox is not used again.
            if slot.subscription is not None:
                with suppress(NatsError):
                    await slot.subscription.unsubscribe()
            raise
        else:
            slot.take = None
            if client is self._client:
                self._free.append(slot)
        finally:
            self._busy.discard(slot)
        if status == NO_RESPONDERS:
            raise NoResponders(self._options.location, subject)
        return found, status

    async def send(self, subject: str, payload: bytes = b"") -> None:
        """Send without waiting for anything."""
        try:
            await self._connected().publish(subject, payload)
        except (NatsError, OSError) as error:
            raise self._unavailable(error) from error

    async def _until(self, sent: Awaitable[None], subject: str, answered: asyncio.Future[T], seconds: float) -> T:
        try:
            await sent
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError as error:
            raise self._silent(subject, seconds) from error
        except (NatsError, OSError) as error:
            raise self._unavailable(error) from error
        finally:
            if answered.done() and not answered.cancelled():
                answered.exception()  # If this was cancelled, nobody else asks for it.

    async def _new_slot(self, client: Client) -> _Slot:
        slot = _Slot()
        slot.inbox = client.new_inbox()
        try:
            slot.subscription = await client.subscribe(slot.inbox, cb=slot.receive)
        except (NatsError, OSError) as error:
            raise self._unavailable(error) from error
        return slot

    async def _answered(self, message: Msg) -> None:
        answered = self._waiting.get(message.subject)
        if answered is not None and not answered.done():
            answered.set_result(message)

    def _connected(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise self._unavailable()
        return self._client

    def _silent(self, subject: str, seconds: float) -> BusUnavailable:
        return BusUnavailable(f"NATS at {self._options.location} did not answer {subject} in {seconds:g} s")

    def _unavailable(self, error: BaseException | None = None) -> BusUnavailable:
        reason = self._trouble if error is None else words_of(error)
        return BusUnavailable(f"NATS at {self._options.location} is out of reach: {reason}")

    # --- Connecting ---------------------------------------------------------------------------------------------------

    async def _connect_to_any(self) -> None:
        """The library could connect again by itself, but would go on with credentials that no server takes, and keep
        the connections on which it was refused."""
        for server in random.sample(self._options.servers, len(self._options.servers)):
            client = Client()
            self._server = without_secrets(server)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await client.connect(
                        server, **arguments(self._options), error_cb=self._failed, closed_cb=self._closed
                    )
                    await self._subscribe(client)
            except (NatsError, OSError, TimeoutError, ValueError) as error:
                await _close(client)
                self._noticed(error)
                if self._is_refused:
                    break
            except BaseException:
                await _close(client)
                raise
            else:
                self._client, self._is_refused, self._trouble = client, False, "the connection was lost"
                return
        raise self._unavailable()

    async def _subscribe(self, client: Client) -> None:
        self._inbox = client.new_inbox()
        self._free.clear()
        await client.subscribe(f"{self._inbox}.*", cb=self._answered)
        for subject, receive in self._listeners:
            await client.subscribe(subject, cb=receive)

    async def _failed(self, error: Exception) -> None:
        self._noticed(error)

    def _noticed(self, error: BaseException) -> None:
        if isinstance(error, NoServersError):
            return  # It follows the actual reason.
        if self._is_refused and isinstance(error, ConnectionError | UnexpectedEOF | TimeoutError):
            return  # A server that refuses a client ends the connection as well.
        words = words_of(error)
        if words != self._trouble and not self._is_closed:
            log.warning("NATS at %s: %s", self._server or self._options.location, words)
        self._trouble = words
        self._is_refused = is_refusal(error)

    async def _closed(self) -> None:
        if self._client is not None and self._client.is_closed:
            self._fail_waiting()
            self._lost.set()

    async def _keep_connected(self) -> None:
        while True:
            await self._until_lost()
            log.warning("the connection to NATS at %s is lost; connecting again", self._options.location)
            self._fail_waiting()
            await self._reconnect()
            log.warning("connected to NATS at %s again", self._options.location)
            try:
                if self.on_connect is not None:
                    await self.on_connect()
            except BusUnavailable as error:
                log.warning("%s", error)

    async def _until_lost(self) -> None:
        while self._client is not None and not self._client.is_closed:
            self._lost.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._lost.wait()

    def _fail_waiting(self) -> None:
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_result(None)
        for slot in self._busy:
            if slot.take is not None:
                slot.take(None)

    async def _reconnect(self) -> None:
        while True:
            try:
                await self._connect_to_any()
                return
            except BusUnavailable:
                await asyncio.sleep(RECONNECT_SECONDS)


async def _close(client: Client) -> None:
    # After a failed TLS handshake the library waits for ever.
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()
