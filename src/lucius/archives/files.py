"""Archive files by day and tenant: `2026-01-31/acme/FIRST_LAST_DIGEST.jsonl`.

The name says which ids a file may have, so finding a job reads the files of its day and tenant whose range contains its
id. A file is never changed, and its name contains a digest of its content: writing it again is harmless.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote

from lucius.archives.formats import FORMATS, ArchiveFormat
from lucius.azure.blob import BlobAccount, BlobConflict, BlobFailed
from lucius.ports.archive import ArchivedJob, ArchiveUnavailable, day_of
from lucius.private_files import PRIVATE_FILE, PRIVATE_FOLDER

FILES_LISTED_MAX = 100_000
FILE_BYTES_MAX = 512 * 1024 * 1024
TEMPORARY = ".tmp"


class Place(Protocol):
    """Where the files are."""

    name: str

    async def put(self, path: str, content: bytes) -> None:
        """Whole and durable when this returns."""
        ...

    async def names(self, prefix: str) -> list[str]:
        """The paths that begin with this prefix, which ends with a slash."""
        ...

    async def read(self, path: str) -> bytes: ...

    async def health(self) -> str: ...


class _Part(NamedTuple):
    path: str
    content: bytes


class FileArchive:
    def __init__(self, place: Place, format_: ArchiveFormat) -> None:
        self._place = place
        self._format = format_
        self.name = place.name

    async def write(self, jobs: Sequence[ArchivedJob]) -> None:
        for part in await asyncio.to_thread(lambda: list(self._parts(jobs))):
            await self._place.put(part.path, part.content)

    def _parts(self, jobs: Sequence[ArchivedJob]) -> Iterator[_Part]:
        def whose(job: ArchivedJob) -> tuple[str, str]:
            return day_of(job.job_id), job.tenant_id

        for (day, tenant), group in groupby(sorted(jobs, key=lambda job: (*whose(job), job.job_id)), whose):
            some = list(group)
            content = self._format.pack(some)
            digest = hashlib.sha256(content).hexdigest()[:16]
            name = f"{some[0].job_id}_{some[-1].job_id}_{digest}{self._format.suffix}"
            yield _Part(f"{day}/{_folder(tenant)}/{name}", content)

    async def find(self, job_id: str, tenants: Collection[str] | None) -> bytes | None:
        day = day_of(job_id)
        prefixes = [f"{day}/"] if tenants is None else [f"{day}/{_folder(tenant)}/" for tenant in sorted(tenants)]
        for prefix in prefixes:
            for path in await self._place.names(prefix):
                format_ = _format_if_within(path, job_id)
                if format_ is None:
                    continue
                content = await self._place.read(path)
                found = await asyncio.to_thread(format_.find, content, job_id)
                if found is not None:
                    return found
        return None

    async def health(self) -> str:
        return await self._place.health()


def _folder(tenant: str) -> str:
    """A tenant's id as one name of a folder. `.` is quoted too: no name leads elsewhere."""
    return quote(tenant, safe="").replace(".", "%2E")


def _format_if_within(path: str, job_id: str) -> ArchiveFormat | None:
    """How to read the file, if its range contains the id. Both formats are read, whichever is written now."""
    first, _, rest = path.rpartition("/")[2].partition("_")
    last = rest.partition("_")[0]
    if not first <= job_id <= last:
        return None
    return next((kind() for kind in FORMATS.values() if path.endswith(kind.suffix)), None)


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.name = f"the folder {root}"

    async def put(self, path: str, content: bytes) -> None:
        try:
            await asyncio.to_thread(self._put, self._root / path, content)
        except OSError as error:
            raise ArchiveUnavailable(f"{self.name} cannot be written: {error.strerror or error}") from error

    def _put(self, path: Path, content: bytes) -> None:
        folder = path.parent
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        temporary = folder / f"{path.name}.{os.getpid()}{TEMPORARY}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        for one in (folder, folder.parent, self._root):
            descriptor = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    async def names(self, prefix: str) -> list[str]:
        def look() -> list[str]:
            folder = self._root / prefix
            found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(TEMPORARY))
            return sorted(path.relative_to(self._root).as_posix() for path in found)

        try:
            return await asyncio.to_thread(look)
        except OSError as error:
            raise ArchiveUnavailable(f"{self.name} cannot be read: {error.strerror or error}") from error

    async def read(self, path: str) -> bytes:
        try:
            return await asyncio.to_thread((self._root / path).read_bytes)
        except OSError as error:
            raise ArchiveUnavailable(f"{self.name} cannot be read: {error.strerror or error}") from error

    async def health(self) -> str:
        existing = next((one for one in (self._root, *self._root.parents) if one.exists()), Path("/"))
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise ArchiveUnavailable(f"{existing} is no folder that this user may write to")
        return self.name


class BlobFolder:
    def __init__(self, account: BlobAccount, container: str, prefix: str) -> None:
        self._account = account
        self._container = container
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.name = f"blob://{container}/{self._prefix}"

    async def put(self, path: str, content: bytes) -> None:
        try:
            with suppress(BlobConflict):  # The same name has the same content.
                await self._account.write(self._container, self._prefix + path, content, overwrite=False)
        except BlobFailed as error:
            raise ArchiveUnavailable(str(error)) from error

    async def names(self, prefix: str) -> list[str]:
        try:
            found = await self._account.names(self._container, self._prefix + prefix, FILES_LISTED_MAX)
        except BlobFailed as error:
            raise ArchiveUnavailable(str(error)) from error
        return [name.removeprefix(self._prefix) for name in found]

    async def read(self, path: str) -> bytes:
        try:
            return (await self._account.read(self._container, self._prefix + path, FILE_BYTES_MAX)).content
        except BlobFailed as error:
            raise ArchiveUnavailable(str(error)) from error

    async def health(self) -> str:
        await self.names("0000-00-00/")
        return self.name
