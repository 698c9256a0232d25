"""Blobs for code that runs in threads, as step functions and stores do.

The account's client is asynchronous and belongs to one event loop. That loop runs in a thread of its own, so that large
transfers delay neither heartbeats nor async step functions. Every call has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from lucius.azure.blob import BlobAccount, BlobConflict, BlobNotFound
from lucius.azure.blob_opening import StorageOptions
from lucius.azure.credential import AzureIdentity
from lucius.platform.blob_path import BlobPath
from lucius.platform.errors import ServiceUnusable

CLOSE_SECONDS_MAX = 5.0

T = TypeVar("T")


class BlobFiles:
    """A context manager. Every call raises `BlobFailed`, which names the blob and nothing secret."""

    def __init__(self, options: StorageOptions, identity: AzureIdentity) -> None:
        """`identity` is used, and closed, in the thread of this. Raises `ServiceUnusable`."""
        self._options = options
        self._identity = identity
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lucius-blobs", daemon=True)
        self._thread.start()
        self._account: BlobAccount | None = None
        try:
            self._account = self._call(self._open())
        except ValueError as error:
            self.close()
            raise ServiceUnusable(str(error)) from error
        self.url = self._account.url

    def __enter__(self) -> BlobFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fetch(self, path: BlobPath, target: BinaryIO, bytes_max: int) -> None:
        """Stream one version of the blob into an open file."""
        self._call(self._opened.fetch(*path, target, bytes_max))

    def read(self, path: BlobPath, bytes_max: int) -> bytes | None:
        """A small blob; None if there is none."""
        try:
            return self._call(self._opened.read(*path, bytes_max)).content
        except BlobNotFound:
            return None

    def write(self, path: BlobPath, content: bytes | Path) -> None:
        """Readers see the old content or the new; a file is streamed."""
        self._call(self._opened.write(*path, content))

    def create(self, path: BlobPath, content: bytes) -> bool:
        """Whether this call created the blob; of concurrent calls only one does, even if its answer was lost."""
        try:
            self._call(self._opened.write(*path, content, overwrite=False))
        except BlobConflict:
            return False
        return True

    def replace(self, path: BlobPath, content: bytes) -> bool:
        """Whether there was a blob to replace."""
        try:
            etag = self._call(self._opened.etag(*path))
            self._call(self._opened.write(*path, content, if_match=etag))
        except BlobNotFound:
            return False
        return True

    def delete(self, path: BlobPath) -> None:
        self._call(self._opened.delete(*path))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._call(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS_MAX)
            if not self._thread.is_alive():
                self._loop.close()

    @property
    def _opened(self) -> BlobAccount:
        assert self._account is not None
        return self._account

    async def _open(self) -> BlobAccount:
        return self._options.open(self._identity)

    async def _close(self) -> None:
        current = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not current]
        for task in left:
            task.cancel()
        with suppress(TimeoutError):  # The process goes on without it; the thread keeps nobody from exiting.
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await asyncio.gather(*left, return_exceptions=True)
                if self._account is not None:
                    await self._account.close()
                await self._identity.close()

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
