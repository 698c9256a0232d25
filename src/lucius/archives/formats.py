"""The content of one archive file: JSON lines or Parquet, sorted by job id."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Protocol

from lucius.domain.time import iso
from lucius.ports.archive import ArchivedJob
from lucius.settings import SettingsError


class ArchiveFormat(Protocol):
    suffix: str

    def pack(self, jobs: Sequence[ArchivedJob]) -> bytes: ...

    def find(self, content: bytes, job_id: str) -> bytes | None: ...


class JsonLines:
    """A line for each job, which begins with its id."""

    suffix = ".jsonl"

    def pack(self, jobs: Sequence[ArchivedJob]) -> bytes:
        return b"".join(job.document + b"\n" for job in jobs)

    def find(self, content: bytes, job_id: str) -> bytes | None:
        # Only a job's own line begins with its id; others may mention it.
        mark = b'"jobId":"%s"' % job_id.encode()
        for line in content.splitlines():
            if mark in line[:100]:
                return line
        return None


class Parquet:
    """A row for each job: columns to select by, and the document."""

    suffix = ".parquet"

    def __init__(self) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise SettingsError(
                "LUCIUS_ARCHIVE_FORMAT=parquet needs the extra `parquet`: pip install '.[parquet]' in a clone of LUCIUS"
            ) from error
        self._arrow: Any = pyarrow
        self._parquet: Any = pyarrow.parquet

    def pack(self, jobs: Sequence[ArchivedJob]) -> bytes:
        columns = {
            "job_id": [job.job_id for job in jobs],
            "tenant_id": [job.tenant_id for job in jobs],
            "status": [job.status for job in jobs],
            "request_type": [job.request_type for job in jobs],
            "created_at": [iso(job.created_at) for job in jobs],
            "completed_at": [iso(job.completed_at) for job in jobs],
            "document": [job.document.decode() for job in jobs],
        }
        out = io.BytesIO()
        self._parquet.write_table(self._arrow.table(columns), out)
        return out.getvalue()

    def find(self, content: bytes, job_id: str) -> bytes | None:
        table = self._parquet.read_table(io.BytesIO(content), columns=["job_id", "document"])
        for place, found in enumerate(table.column("job_id").to_pylist()):
            if found == job_id:
                return str(table.column("document")[place].as_py()).encode()
        return None


FORMATS: dict[str, type[JsonLines] | type[Parquet]] = {"jsonl": JsonLines, "parquet": Parquet}


def open_format(name: str) -> ArchiveFormat:
    """Raises `SettingsError`."""
    if name not in FORMATS:
        raise SettingsError(f"LUCIUS_ARCHIVE_FORMAT={name!r}: must be {' or '.join(FORMATS)}")
    return FORMATS[name]()
