"""A proxy between services and their orchestrator that does to calls what networks and load balancers do to them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import TracebackType

import aiohttp
from aiohttp import web

CALL_SECONDS_MAX = 60.0
DELAY_SECONDS = (0.2, 1.5)
PASSED_ON = ("authorization", "content-type", "lucius-callback-token", "traceparent")
FAULTS = ("503 of the server", "503 of a proxy", "404 of a proxy", "reset before", "reset after", "cut off", "delayed")


class Proxy:
    """While `failing` is set, every call meets one of `FAULTS`; else all are passed on."""

    def __init__(self, server_port: int, rng: random.Random) -> None:
        self._target = f"http://127.0.0.1:{server_port}"
        self._rng = rng
        self._deck: list[str] = []
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.url = ""
        self.failing = False
        self.met: Counter[str] = Counter()
        """How many calls met which fault."""

    async def __aenter__(self) -> Proxy:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS_MAX),
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self._draw() if self.failing else None
        match fault:
            case "503 of the server":
                body = {"code": "UNAVAILABLE", "detail": "the ledger is out of reach"}
                return web.json_response(body, status=503, content_type="application/problem+json")
            case "503 of a proxy":
                return web.Response(status=503, text="<html>no upstream</html>", content_type="text/html")
            case "404 of a proxy":
                return web.Response(status=404, text="default backend - 404")
            case "reset before":
                return _reset(request)
            case "delayed":
                await asyncio.sleep(self._rng.uniform(*DELAY_SECONDS))
        try:
            status, content, content_type = await self._pass_on(request)
        except aiohttp.ClientError:
            return web.Response(status=502, text="no upstream")
        if fault == "reset after":
            return _reset(request)
        if fault == "cut off":
            # The length of the whole, half of the content, and the end of the connection.
            cut = web.StreamResponse(status=status, headers={"Content-Length": str(len(content))})
            await cut.prepare(request)
            await cut.write(content[: len(content) // 2])
            return _reset(request)
        return web.Response(status=status, body=content, content_type=content_type)

    def _draw(self) -> str:
        """At random, and yet each as often as any other."""
        if not self._deck:
            self._deck = self._rng.sample(FAULTS, len(FAULTS))
        fault = self._deck.pop()
        self.met[fault] += 1
        return fault

    async def _pass_on(self, request: web.Request) -> tuple[int, bytes, str]:
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() in PASSED_ON}
        url = f"{self._target}{request.path_qs}"
        async with self._session.request(request.method, url, data=await request.read(), headers=headers) as answer:
            return answer.status, await answer.read(), answer.content_type


def _reset(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()  # It has nowhere to go.
