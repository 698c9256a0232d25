"""Documents that are too large for a key-value, as blobs of one container. A blob is written once and never changed."""

from __future__ import annotations

from lucius.azure.blob import BlobAccount, BlobConflict, BlobFailed
from lucius.registries.appconfig.store import StoreFailed
from lucius.yaml_text import BYTES_MAX

SECONDS = 20.0


class BlobDocuments:
    def __init__(self, account: BlobAccount, container: str) -> None:
        self._account = account
        self._container = container

    async def read(self, name: str) -> bytes:
        try:
            return (await self._account.read(self._container, name, BYTES_MAX, SECONDS)).content
        except BlobFailed as error:
            raise StoreFailed(str(error)) from error

    async def write(self, name: str, content: bytes) -> None:
        try:
            await self._account.write(self._container, name, content, overwrite=False, seconds=SECONDS)
        except BlobConflict:
            return  # Its name has its digest: it is the same.
        except BlobFailed as error:
            raise StoreFailed(str(error)) from error
