"""The port of archives: where jobs are kept that leave the ledger."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

from lucius.domain.time import Instant, iso


class ArchiveUnavailable(Exception):
    """The archive cannot be read or written; nothing was deleted. The message says what failed."""


class ArchivedJob(Struct, frozen=True, kw_only=True):
    job_id: str
    tenant_id: str
    status: str
    request_type: str
    created_at: Instant
    completed_at: Instant
    document: bytes
    """The whole job as JSON, without line breaks: see `usecases.archived_jobs`."""


class Archive(Protocol):
    name: str
    """Where it is, for people."""

    async def write(self, jobs: Sequence[ArchivedJob]) -> None:
        """Keep these jobs, durably when this returns. A job that is written twice is kept twice. Raises
        `ArchiveUnavailable`."""
        ...

    async def find(self, job_id: str, tenants: Collection[str] | None) -> bytes | None:
        """The document of a job, of these tenants or of any. Reads no more than the files that may have it. Raises
        `ArchiveUnavailable`."""
        ...

    async def health(self) -> str:
        """Raises `ArchiveUnavailable`."""
        ...


def day_of(job_id: str) -> str:
    """The day, in UTC, on which a job was made: its id begins with the time."""
    return iso(int(job_id[:8] + job_id[9:13], 16))[:10]
