"""A deployment whose processes are replaced one by one, as Kubernetes replaces pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.crash.processes import Process, free_port

LEAVING_SECONDS = 0.5
"""Between the moment when a process gets no new connections and SIGTERM: `preStop` of the chart, shortened."""
CHUNK_BYTES = 65_536


class Version(NamedTuple):
    name: str
    program: Path
    settings: Mapping[str, str]
    drains: bool
    """Whether it has clients close their connections before it stops."""


class Balancer:
    """What a Service is: new connections go to the pods that are ready, and existing ones stay where they are."""

    def __init__(self) -> None:
        self.endpoints: list[int] = []
        self.port = 0
        self._next = 0
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Balancer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._next += 1
        port = self.endpoints[self._next % len(self.endpoints)]
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))
        finally:
            writer.close()
            inner_writer.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # Either side may go first; the client sees it as it is.
    finally:
        writer.close()


class Fleet:
    """The processes of a deployment, by place: two of a role are two places."""

    def __init__(self, stack: ExitStack, folder: Path, settings: Mapping[str, str], balancer: Balancer) -> None:
        self._stack = stack
        self._folder = folder
        self._settings = settings
        self._balancer = balancer
        self._places: list[tuple[str, Process]] = []
        self.all: list[Process] = []

    async def start(self, roles: Sequence[str], version: Version) -> None:
        for role in roles:
            self._places.append((role, await self._started(role, version)))

    async def roll(self, version: Version) -> None:
        """Each process by one of another version, which is ready before the old one is asked to leave."""
        for place, (role, old) in enumerate(self._places):
            new = await self._started(role, version)
            if old.port is not None:
                self._balancer.endpoints.remove(old.port)
                await asyncio.sleep(LEAVING_SECONDS)
            await asyncio.to_thread(old.terminate)
            self._places[place] = (role, new)

    async def _started(self, role: str, version: Version) -> Process:
        process = Process(
            role, settings={**self._settings, **version.settings}, program=(version.program,),
            folder=self._folder / f"{len(self.all)}-{role}-{version.name}",
            port=free_port() if role == "api" else None,
        )  # fmt: skip
        await asyncio.to_thread(self._stack.enter_context, process)
        self.all.append(process)
        if process.port is not None:
            self._balancer.endpoints.append(process.port)
        return process
