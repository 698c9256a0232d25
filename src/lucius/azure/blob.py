"""Blobs of one storage account: read within a limit, written whole or not at all, deleted.

A write may name the ETag that it replaces, or demand that nothing is there yet. Azure retries such a write after an
answer was lost, and then refuses it because of its own first try; so every write carries an id, and a refusal is
compared with what is there.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from lucius.azure.blob_errors import (
    BlobConflict,
    BlobContainerNotFound,
    BlobFailed,
    BlobForbidden,
    BlobNotFound,
    BlobTooLarge,
    BlobUnavailable,
)

__all__ = [
    "Blob",
    "BlobAccount",
    "BlobConflict",
    "BlobContainerNotFound",
    "BlobFailed",
    "BlobForbidden",
    "BlobNotFound",
    "BlobTooLarge",
    "BlobUnavailable",
]

CALL_SECONDS = 30.0
"""One call with its retries. What moves large content has its own, `TRANSFER_SECONDS`."""
TRANSFER_SECONDS = 600.0
CONNECT_SECONDS, ANSWER_SECONDS = 5, 20
READ_BYTES, WRITE_BYTES = 4 * 1024 * 1024, 1024 * 1024
"""What one request carries. aiohttp writes a body of up to 1 MiB at once, and warns of larger ones."""
WRITES_AT_ONCE = 4
WRITE_ID = "lucius_write"

T = TypeVar("T")


class Blob(NamedTuple):
    content: bytes
    etag: str


class BlobAccount:
    """An async context manager. Every call raises a `BlobFailed`, which names the blob and nothing secret."""

    def __init__(self, service: Any, account: str) -> None:
        """Use one of the constructors below. `service` is the SDK's async client."""
        self._service = service
        self.account = account
        self.url = str(service.primary_endpoint).rstrip("/").partition("?")[0]
        """Where the account is, without a signature."""

    @classmethod
    def connected(cls, connection: str) -> BlobAccount:
        """By connection string, for emulators and tests. Raises `ValueError` for one that is not."""
        from azure.storage.blob.aio import BlobServiceClient

        try:
            service = BlobServiceClient.from_connection_string(connection, **_options())
        except (ValueError, KeyError, AttributeError):
            raise ValueError("this is not a connection string of a storage account") from None
        return cls(service, str(service.account_name))

    @classmethod
    def named(cls, account: str, credential: Any, url: str = "") -> BlobAccount:
        """By name. `credential` is an async credential, which the caller closes, or the text of a SAS; `url` is where
        the account is if not at `https://ACCOUNT.blob.core.windows.net`."""
        from azure.storage.blob.aio import BlobServiceClient

        if isinstance(credential, str):
            from azure.core.credentials import AzureSasCredential

            credential = AzureSasCredential(credential.lstrip("?"))
        url = url or f"https://{account}.blob.core.windows.net"
        return cls(BlobServiceClient(url, credential=credential, **_options()), account)

    async def __aenter__(self) -> BlobAccount:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._service.close()

    async def read(self, container: str, name: str, bytes_max: int, seconds: float = TRANSFER_SECONDS) -> Blob:
        """Raises `BlobTooLarge` before more than `bytes_max` are read."""
        async with self._call(container, name, seconds):
            download = await self._download(container, name, bytes_max)
            return Blob(await download.readall(), download.properties.etag)

    async def fetch(
        self, container: str, name: str, target: BinaryIO, bytes_max: int, seconds: float = TRANSFER_SECONDS
    ) -> str:
        """Stream the content, all of one version of the blob, into an open file; returns its ETag."""
        async with self._call(container, name, seconds):
            download = await self._download(container, name, bytes_max)
            await download.readinto(target)
            return str(download.properties.etag)

    async def etag(self, container: str, name: str) -> str:
        async with self._call(container, name):
            return str((await self._client(container, name).get_blob_properties()).etag)

    async def write(
        self,
        container: str,
        name: str,
        content: bytes | Path,
        *,
        overwrite: bool = True,
        if_match: str | None = None,
        seconds: float = TRANSFER_SECONDS,
    ) -> str:
        """The new ETag. Readers see the old or the new content; a file is streamed.

        Raises `BlobConflict` if there is a blob and `overwrite` is false, or if its ETag is not `if_match`.
        """
        conditions: dict[str, Any] = {"overwrite": overwrite}
        if if_match is not None:
            conditions = {"overwrite": True, **_unless_changed(if_match)}
        write_id = uuid.uuid4().hex
        client = self._client(container, name)

        async def upload() -> str:
            with _opened(content) as (data, size):
                written = await client.upload_blob(
                    data, length=size, metadata={WRITE_ID: write_id}, max_concurrency=WRITES_AT_ONCE, **conditions
                )
            return str(written["etag"])

        async with self._call(container, name, seconds):
            return await self._written(client, write_id, upload)

    async def delete(self, container: str, name: str, if_match: str | None = None) -> bool:
        """Whether there was one. Raises `BlobConflict` if its ETag is not `if_match`."""
        try:
            async with self._call(container, name):
                await self._client(container, name).delete_blob(
                    **({} if if_match is None else _unless_changed(if_match))
                )
        except BlobNotFound:
            return False
        return True

    async def names(self, container: str, prefix: str, count_max: int) -> list[str]:
        """The names that begin with `prefix`, in order; at most `count_max`."""
        found: list[str] = []
        async with self._call(container, prefix, TRANSFER_SECONDS):
            listing = self._service.get_container_client(container).list_blob_names(
                name_starts_with=prefix, results_per_page=min(count_max, 5_000)
            )
            async for name in listing:
                found.append(name)
                if len(found) >= count_max:
                    break
        return found

    async def create_container(self, container: str) -> None:
        """Does nothing if there is one."""
        try:
            async with self._call(container, ""):
                await self._service.create_container(container)
        except BlobConflict:
            return

    async def has_container(self, container: str) -> bool:
        try:
            async with self._call(container, ""):
                await self._service.get_container_client(container).get_container_properties()
        except BlobContainerNotFound:
            return False
        return True

    def lease(self, container: str, name: str) -> BlobLease:
        """A lease of a blob that exists: nobody else can have one while it lasts."""
        from azure.storage.blob.aio import BlobLeaseClient

        return BlobLease(self, container, name, BlobLeaseClient(self._client(container, name)))

    def _client(self, container: str, name: str) -> Any:
        return self._service.get_blob_client(container, name)

    async def _download(self, container: str, name: str, bytes_max: int) -> Any:
        # As it is stored: content that says it is compressed could unpack to any size.
        download = await self._client(container, name).download_blob(decompress=False, max_concurrency=1)
        if download.size > bytes_max:
            raise BlobTooLarge(
                f"{self._place(container, name)} has {download.size} bytes; at most {bytes_max} are read"
            )
        return download

    async def _written(self, client: Any, write_id: str, upload: Callable[[], Awaitable[str]]) -> str:
        from azure.core.exceptions import HttpResponseError

        try:
            return await upload()
        except HttpResponseError as error:
            if error.status_code not in (409, 412):
                raise
            try:
                found = await client.get_blob_properties()
            except HttpResponseError:
                raise error from None
            if (found.metadata or {}).get(WRITE_ID) != write_id:
                raise
            return str(found.etag)

    def _place(self, container: str, name: str) -> str:
        return f"blob://{container}/{name} of the account {self.account}"

    def _call(self, container: str, name: str, seconds: float = CALL_SECONDS) -> _Call:
        return _Call(self._place(container, name), seconds)


class BlobLease:
    def __init__(self, account: BlobAccount, container: str, name: str, client: Any) -> None:
        self._call: Callable[[], _Call] = partial(account._call, container, name)
        self._client = client

    async def acquire(self, seconds: int) -> None:
        """15 to 60 seconds. Raises `BlobConflict` if somebody else has it."""
        async with self._call():
            await self._client.acquire(lease_duration=seconds)

    async def renew(self) -> None:
        """Raises `BlobConflict` if somebody else has had it since."""
        async with self._call():
            await self._client.renew()

    async def release(self) -> None:
        async with self._call():
            await self._client.release()


class _Call:
    """Within a deadline; what fails is named and sorted."""

    def __init__(self, place: str, seconds: float) -> None:
        self._place = place
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from lucius.azure.blob_errors import sorted_out

        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise BlobUnavailable(f"{self._place}: no answer within {self._seconds:g} s") from None
        if error is not None and (failure := sorted_out(error, self._place)):
            # Not as its cause: what Azure says about a refused signature repeats parts of it.
            raise failure from None


def _options() -> dict[str, Any]:
    from azure.storage.blob.aio import ExponentialRetry

    # It would write a line for every request.
    logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)
    return {
        "retry_policy": ExponentialRetry(initial_backoff=1, increment_base=2, retry_total=3, random_jitter_range=1),
        "connection_timeout": CONNECT_SECONDS,
        "read_timeout": ANSWER_SECONDS,
        "max_single_get_size": READ_BYTES,
        "max_chunk_get_size": READ_BYTES,
        "max_single_put_size": WRITE_BYTES,
        "max_block_size": WRITE_BYTES,
    }


def _unless_changed(etag: str) -> dict[str, Any]:
    from azure.core import MatchConditions

    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


@contextmanager
def _opened(content: bytes | Path) -> Iterator[tuple[Any, int]]:
    if isinstance(content, bytes):
        yield content, len(content)
        return
    with content.open("rb") as file:
        yield file, content.stat().st_size
