"""Where rows are: everything about a job follows from its id and its tenant.

Layout `ledger` is one table, with a partition for each job and others for the index. Layout `table` has a table for
each kind of row, keyed by tenant and month, or by job. The rows that decide what a job's state is, its core, are in one
partition in both layouts, so that one transaction writes them; where the others are elsewhere, they follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol
from zlib import crc32

from lucius.azure.keys import instant, key, part, prefix_end
from lucius.domain.time import Instant

SHARDS = 8
"""Partitions of the index: each serves about 2,000 operations a second, an account 20,000."""
CLAIM_PARTITIONS = 64


class JobRef(NamedTuple):
    job_id: str
    tenant_id: str


class Place(NamedTuple):
    table: str
    partition: str


class Layout(Protocol):
    name: str
    tables: tuple[str, ...]
    """Names without their prefix."""
    needs_tenant: bool
    """Whether a job is found only by its tenant and its id."""

    def core(self, ref: JobRef) -> Place: ...

    def core_key(self, ref: JobRef, name: str = "") -> str:
        """Of the job's own row, or of another row of its core."""
        ...

    def steps(self, ref: JobRef) -> Place: ...

    def step_key(self, index: int, step_id: str) -> str: ...

    def steps_range(self) -> tuple[str, str | None]: ...

    def outbox(self, ref: JobRef) -> Place: ...

    def outbox_key(self, ref: JobRef, index: int, attempt_no: int) -> str: ...

    def outbox_range(self, ref: JobRef) -> tuple[str, str]: ...

    def events(self, ref: JobRef) -> Place: ...

    def event_key(self, last_seq: int, at: Instant) -> str: ...

    def events_range(self, after_seq: int) -> tuple[str, str | None]:
        """A range that holds all events after this number; it may hold earlier ones too."""
        ...

    def index(self, shard: int) -> Place: ...

    def claims(self, claim_key: str) -> Place: ...

    def slots(self) -> Place: ...


def shard_of(job_id: str) -> int:
    return crc32(job_id.encode()) % SHARDS


def month_of(job_id: str) -> str:
    """When a job was made, from its id, which begins with the time."""
    try:
        millis = int(job_id.replace("-", "")[:12], 16)
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y%m")
    except (ValueError, OverflowError, OSError):
        return "000000"


def _number(value: int, digits: int) -> str:
    return f"{value:0{digits}d}"


class LedgerLayout:
    """One table; rows `JOB`, `JOB:SPEC`, `STEP:…`, `OUTBOX:…` and `EVENT:…` of a job are in the partition of its id."""

    name = "ledger"
    tables: tuple[str, ...] = ("ledger",)
    needs_tenant = False

    def core(self, ref: JobRef) -> Place:
        return Place("ledger", part(ref.job_id))

    def core_key(self, ref: JobRef, name: str = "") -> str:
        return key("JOB", name) if name else "JOB"

    def steps(self, ref: JobRef) -> Place:
        return self.core(ref)

    def step_key(self, index: int, step_id: str) -> str:
        return key("STEP", _number(index, 3), part(step_id))

    def steps_range(self) -> tuple[str, str | None]:
        return "STEP:", prefix_end("STEP")

    def outbox(self, ref: JobRef) -> Place:
        return self.core(ref)

    def outbox_key(self, ref: JobRef, index: int, attempt_no: int) -> str:
        return key("OUTBOX", _number(index, 3), _number(attempt_no, 6))

    def outbox_range(self, ref: JobRef) -> tuple[str, str]:
        return "OUTBOX:", prefix_end("OUTBOX")

    def events(self, ref: JobRef) -> Place:
        return self.core(ref)

    def event_key(self, last_seq: int, at: Instant) -> str:
        return key("EVENT", _number(last_seq, 10))

    def events_range(self, after_seq: int) -> tuple[str, str | None]:
        return key("EVENT", _number(after_seq + 1, 10)), prefix_end("EVENT")

    def index(self, shard: int) -> Place:
        return Place("ledger", f"INDEX:{shard}")

    def claims(self, claim_key: str) -> Place:
        return Place("ledger", f"IDEMPOTENCY:{crc32(claim_key.encode()) % CLAIM_PARTITIONS:02d}")

    def slots(self) -> Place:
        return Place("ledger", "INFLIGHT")


class TableLayout:
    """A table for each kind of row."""

    name = "table"
    tables: tuple[str, ...] = ("jobs", "steps", "outbox", "events", "idempotency", "index", "inflight")
    needs_tenant = True

    def core(self, ref: JobRef) -> Place:
        return Place("jobs", key(part(ref.tenant_id), month_of(ref.job_id)))

    def core_key(self, ref: JobRef, name: str = "") -> str:
        return key(part(ref.job_id), name) if name else part(ref.job_id)

    def steps(self, ref: JobRef) -> Place:
        return Place("steps", part(ref.job_id))

    def step_key(self, index: int, step_id: str) -> str:
        return key(_number(index, 3), part(step_id))

    def steps_range(self) -> tuple[str, str | None]:
        return "", None

    def outbox(self, ref: JobRef) -> Place:
        return Place("outbox", key(part(ref.tenant_id), month_of(ref.job_id)))

    def outbox_key(self, ref: JobRef, index: int, attempt_no: int) -> str:
        return key(part(ref.job_id), _number(index, 3), _number(attempt_no, 6))

    def outbox_range(self, ref: JobRef) -> tuple[str, str]:
        return part(ref.job_id) + ":", prefix_end(part(ref.job_id))

    def events(self, ref: JobRef) -> Place:
        return Place("events", part(ref.job_id))

    def event_key(self, last_seq: int, at: Instant) -> str:
        return key(instant(at), _number(last_seq, 10))

    def events_range(self, after_seq: int) -> tuple[str, str | None]:
        return "", None

    def index(self, shard: int) -> Place:
        return Place("index", f"INDEX:{shard}")

    def claims(self, claim_key: str) -> Place:
        return Place("idempotency", f"{crc32(claim_key.encode()) % CLAIM_PARTITIONS:02d}")

    def slots(self) -> Place:
        return Place("inflight", "INFLIGHT")


LAYOUTS: dict[str, Layout] = {"ledger": LedgerLayout(), "table": TableLayout()}
LAYOUT_NAMES: Sequence[str] = tuple(LAYOUTS)
