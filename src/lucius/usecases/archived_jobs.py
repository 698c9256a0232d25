"""A job as it is kept in an archive: everything that the ledger has of it, readable without LUCIUS."""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.time import Instant, iso
from lucius.ports.archive import ArchivedJob
from lucius.ports.ledger import Ledger

FORMAT = 1
EVENTS_PAGE = 1_000
_TIMES = ("_at", "_until", "_by", "not_before", "since")
_encode = msgspec.json.Encoder().encode


async def read_for_archive(ledger: Ledger, job_ids: list[str], now: Instant) -> list[ArchivedJob]:
    """Those of these jobs that can be read and have ended."""
    found = []
    for job_id, job in (await ledger.load(job_ids)).items():
        if job.completed_at is None:
            continue
        events: list[Any] = []
        while page := await ledger.events(job_id, events[-1].seq if events else 0, EVENTS_PAGE):
            events += page
        closing = (await ledger.closings([job_id])).get(job_id)
        document = {
            "format": FORMAT,
            "jobId": job_id,
            "tenant_id": job.spec.tenant_id,
            "archived_at": iso(now),
            "job": job,
            "attempts": await ledger.attempts(job_id),
            "events": events,
            "closing": closing,
        }
        found.append(
            ArchivedJob(
                job_id=job_id,
                tenant_id=job.spec.tenant_id,
                status=job.status.value,
                request_type=job.spec.request_type,
                created_at=job.spec.created_at,
                completed_at=job.completed_at,
                document=_encode(_with_readable_times(msgspec.json.decode(_encode(document)))),
            )
        )
    return found


def _with_readable_times(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        # What clients and services sent stays as it is.
        return {
            key: member if key in ("payload", "artifacts", "data") else _with_readable_times(member, key)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [_with_readable_times(item, name) for item in value]
    is_time = isinstance(value, int) and not isinstance(value, bool) and (name == "at" or name.endswith(_TIMES))
    return iso(value) if is_time else value
