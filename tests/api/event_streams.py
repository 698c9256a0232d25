"""A reader of event streams, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lucius.api.app import create_front


class Stream:
    """A reader of one stream. It speaks ASGI: the test client's own transport hands over only whole answers."""

    def __init__(self, api: Any, job_id: str, query: str, headers: dict[str, str]) -> None:
        sent = {"accept": "text/event-stream", "authorization": api.client.headers["authorization"], **headers}
        self._front = create_front(api.context)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/v1/jobs/{job_id}/events",
            "raw_path": f"/v1/jobs/{job_id}/events".encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "server": ("lucius.test", 80),
            "client": ("test", 1),
        }
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False
        self._text = ""
        self.status = 0
        self.headers: dict[str, str] = {}

    async def run(self) -> None:
        await self._front(self._scope, self._receive, self._messages.put)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def hang_up(self) -> None:
        self._gone.set()

    async def event(self) -> dict[str, str] | None:
        """The next event, waited for; None at the end of the stream."""
        while "\n\n" not in self._text:
            async with asyncio.timeout(20):
                message = await self._messages.get()
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                continue
            self._text += message.get("body", b"").decode()
            if not message.get("more_body") and "\n\n" not in self._text:
                return None
        block, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in block.splitlines())

    async def refusal(self) -> dict[str, Any]:
        """The problem that it was answered with instead."""
        assert await self.event() is None
        return dict(json.loads(self._text))

    async def rest(self) -> list[dict[str, str]]:
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found


@asynccontextmanager
async def follow(api: Any, job_id: str, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    stream = Stream(api, job_id, query, headers)
    running = asyncio.create_task(stream.run())
    try:
        yield stream
    finally:
        stream.hang_up()
        await asyncio.wait_for(running, 20)
