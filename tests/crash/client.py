"""A client that trusts no connection: what was not answered is asked again, at any server there is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import aiohttp
from tests.crash.processes import API_KEY

CALL_SECONDS_MAX = 15.0
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.05
AGAIN = {503}
"""Nothing was taken; ask again."""


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class Client:
    def __init__(self, ports: Sequence[int], rng: random.Random, call_seconds_max: float = CALL_SECONDS_MAX) -> None:
        self._ports = list(ports)
        self._rng = rng
        self._call_seconds_max = call_seconds_max
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._call_seconds_max),
            headers={"Authorization": f"Bearer {API_KEY}"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def once(self, method: str, path: str, body: Any = None, port: int | None = None, **headers: str) -> Answer:
        """Ask one server once; raises where the connection breaks."""
        assert self._session is not None
        url = f"http://127.0.0.1:{port or self._rng.choice(self._ports)}{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(method, url, json=body, headers=named) as answer:
            return Answer(answer.status, await answer.json(content_type=None), answer.headers)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Ask until it is answered."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    answer = await self.once(method, path, body, **headers)
                    if answer.status not in AGAIN:
                        return answer
                except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError, TimeoutError):
                    pass  # A body that was cut off is no answer either.
                await asyncio.sleep(PAUSE_SECONDS)

    async def read(self, path: str) -> Any:
        answer = await self.ask("GET", path)
        assert answer.status == 200, f"{path}: {answer}"
        return answer.body

    async def pages(self, path: str, field: str) -> list[Any]:
        """Everything that a list has, page by page."""
        found: list[Any] = []
        mark = "&" if "?" in path else "?"
        cursor: str | None = ""
        while cursor is not None:
            page = await self.read(f"{path}{mark}limit=500" + (f"&cursor={cursor}" if cursor else ""))
            found += page[field]
            cursor = page["next"]
        return found


def envelope(key: str | None, tenant_id: str = "acme", **fields: Any) -> dict[str, Any]:
    """A command of three steps."""
    named = {"idempotency_key": key} if key is not None else {}
    return {
        "tenant_id": tenant_id,
        "request_type": "OCR_EMBEDDING_SIS",
        "input_ref": f"blob://in/{key}.pdf",
        "output_ref": f"blob://out/{key}.json",
        "payload": {"ocr": {}, "embedding": {}, "sis": {"prompt_set": ["Who signed it?"]}},
        "schema_version": "1",
        **named,
        **fields,
    }


async def submit(client: Client, command: dict[str, Any]) -> str:
    answer = await client.ask("POST", "/v1/commands", command)
    assert answer.status == 202, answer
    return str(answer.body["jobId"])
