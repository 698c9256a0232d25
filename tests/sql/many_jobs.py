"""A table of many jobs, made quickly: some tenants and types are old or rare, as they are where lists are slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucius.ledgers.sql import statements
from lucius.sql.database import Database, Run, Script
from lucius.testing.samples import START

JOBS = 20_000
OPEN_JOBS = JOBS // 40
"""The newest of them."""
SPACING_MILLIS = 1_000
ROWS_AT_ONCE = 2_000
DOCUMENT = '{"note":"' + "x" * 600 + '"}'
"""As large as the state of a job."""
COLUMNS = statements.names(f"{statements.STATE_KEY}, {statements.STATE}")


def job_id_of(place: int) -> str:
    millis = f"{START + place * SPACING_MILLIS:012x}"
    return f"{millis[:8]}-{millis[8:]}-7000-8000-{place:012x}"


def tenant_of(place: int) -> str:
    """`early` has jobs only at the far end of every list."""
    return "early" if place < JOBS // 10 else f"tenant-{place % 7}"


def type_of(place: int) -> str:
    return "RARE" if place % (JOBS // 10) == 1 else ("OCR", "SIS")[place % 2]


def status_of(place: int) -> str:
    if place >= JOBS - OPEN_JOBS:
        return ("QUEUED", "IN_PROGRESS")[place % 2]
    return "FAILED_FINAL" if place % 50 == 3 else "CANCELLED" if place % 400 == 7 else "SUCCEEDED"


def _rows() -> Iterator[tuple[Any, ...]]:
    fixed = dict.fromkeys(COLUMNS) | {
        "resolved_mode": "DEFAULT", "engine": "outbox", "revision": 5, "step_status": "PROCESSING",
        "document": DOCUMENT,
    }  # fmt: skip
    for place in range(JOBS):
        at, status = START + place * SPACING_MILLIS, status_of(place)
        is_open = status in ("QUEUED", "IN_PROGRESS")
        values = fixed | {
            "job_id": job_id_of(place), "tenant_id": tenant_of(place), "request_type": type_of(place), "status": status,
            "updated_at": at, "completed_at": None if is_open else at + 5,
            "wake_at": at + 10**6 if is_open else None, "wait_cause": "RESULT" if is_open else None,
        }  # fmt: skip
        yield tuple(values[name] for name in COLUMNS)


async def fill(database: Database) -> None:
    rows = list(_rows())
    for first in range(0, JOBS, ROWS_AT_ONCE):
        page = rows[first : first + ROWS_AT_ONCE]

        def script(page: list[tuple[Any, ...]] = page) -> Script[None]:
            yield Run(statements.INSERT_STATE, page, in_one_statement=True)

        await database.write(script)
