"""Sessions run scripts against one server: `Session` blocks, `AsyncSession` awaits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from lucius.client.call import Call, Json, Pause, Response, Script
from lucius.client.errors import ClientError
from lucius.client.following import Following
from lucius.client.retrying import with_retries
from lucius.client.transport import Transport

if TYPE_CHECKING:
    # Not imported by programs that only block.
    from lucius.client.async_transport import AsyncTransport

T = TypeVar("T")

_PAUSED = Response(204, {}, b"")


class Session:
    def __init__(self, transport: Transport, patience_seconds: float = 0.0) -> None:
        """`patience_seconds`: for how long transient failures of a call are retried."""
        self.transport = transport
        self.patience_seconds = patience_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.transport.close()

    def run(self, script: Script[T]) -> T:
        """The script's result. Raises `ClientError`."""
        script = with_retries(script, self.patience_seconds)
        try:
            action = next(script)
            while True:
                try:
                    response = self._carry_out(action)
                except ClientError as error:
                    action = script.throw(error)
                else:
                    action = script.send(response)
        except StopIteration as ended:
            result: T = ended.value
            return result

    def follow(self, following: Following) -> Iterator[Json]:
        """Events as they arrive, until the job has ended."""
        while not following.has_ended:
            try:
                with self.transport.stream(following.call()) as chunks:
                    for chunk in chunks:
                        yield from following.feed(chunk)
                following.broke_off()
            except ClientError as error:
                following.failed(error)
            time.sleep(following.pause_seconds)

    def _carry_out(self, action: Call | Pause) -> Response:
        if isinstance(action, Call):
            return self.transport.send(action)
        time.sleep(action.seconds)
        return _PAUSED


class AsyncSession:
    def __init__(self, transport: AsyncTransport, patience_seconds: float = 0.0) -> None:
        """`patience_seconds`: for how long transient failures of a call are retried."""
        self.transport = transport
        self.patience_seconds = patience_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.transport.close()

    async def run(self, script: Script[T]) -> T:
        """The script's result. Raises `ClientError`."""
        script = with_retries(script, self.patience_seconds)
        try:
            action = next(script)
            while True:
                try:
                    response = await self._carry_out(action)
                except ClientError as error:
                    action = script.throw(error)
                else:
                    action = script.send(response)
        except StopIteration as ended:
            result: T = ended.value
            return result

    async def follow(self, following: Following) -> AsyncIterator[Json]:
        """Events as they arrive, until the job has ended."""
        while not following.has_ended:
            try:
                async with self.transport.stream(following.call()) as chunks:
                    async for chunk in chunks:
                        for event in following.feed(chunk):
                            yield event
                following.broke_off()
            except ClientError as error:
                following.failed(error)
            await asyncio.sleep(following.pause_seconds)

    async def _carry_out(self, action: Call | Pause) -> Response:
        if isinstance(action, Call):
            return await self.transport.send(action)
        await asyncio.sleep(action.seconds)
        return _PAUSED
