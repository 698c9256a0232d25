"""A proxy in front of Azurite that passes a request on and then answers 503, ends a connection instead of passing its
request on, or never answers at all."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web
from yarl import URL

HOP_BY_HOP = ("Transfer-Encoding", "Content-Length", "Connection")


class LossyProxy:
    def __init__(self, port: int) -> None:
        self._target = f"http://127.0.0.1:{port}"
        self._losing: list[str] = []
        self._dropping: list[str] = []
        self.lost = 0
        self.dropped = 0
        self.silent = False
        self.port = 0

    def lose_next(self, method: str) -> None:
        self._losing.append(method)

    def drop_next(self, method: str) -> None:
        """As a server does that closes an idle connection just when the request arrives."""
        self._dropping.append(method)

    async def __aenter__(self) -> LossyProxy:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=2**27)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.silent = False
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if self.silent:
            await asyncio.Event().wait()  # Until the client or the test ends the connection.
        body = await request.read()
        if request.method in self._dropping:
            self._dropping.remove(request.method)
            self.dropped += 1
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        url = URL(self._target + request.raw_path, encoded=True)  # Unchanged, because the signature covers it.
        async with self._session.request(
            request.method, url, data=body or None, headers=headers, skip_auto_headers=("Content-Type",)
        ) as answer:
            content = await answer.read()
            if request.method in self._losing:
                self._losing.remove(request.method)
                self.lost += 1
                return web.Response(status=503)
            kept = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
            return web.Response(status=answer.status, body=content, headers=kept)
