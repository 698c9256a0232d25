"""The events of one job and turn, in an array. Their numbers are not in it: the row holds that of the last.

A new field goes last and has a default, no field is ever moved or removed, and no status is ever moved in its list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.effects import Event
from lucius.domain.time import Instant

STEP_STATUSES = (
    "PENDING", "DISPATCHING", "INITIATED", "PROCESSING", "FAILED_RETRY", "SUCCEEDED", "FAILED_FINAL", "CANCELLED",
)  # fmt: skip
JOB_STATUSES = (
    "QUEUED", "DISPATCHING", "IN_PROGRESS", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED_FINAL", "CANCELLED",
)  # fmt: skip

_step_places = {status: place for place, status in enumerate(STEP_STATUSES)}
_job_places = {status: place for place, status in enumerate(JOB_STATUSES)}


class EventRecord(Struct, array_like=True, frozen=True):
    since_first: int
    """Milliseconds since the first event of its row."""
    type: str
    step_id: str | None
    attempt_no: int | None
    step_status: int | str | None
    """Its place in `STEP_STATUSES`; as it is if it is not there."""
    job_status: int | str | None
    """Its place in `JOB_STATUSES`; as it is if it is not there."""
    data: dict[str, Any] = {}
    """Without the two statuses, which nearly every event has."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[Instant, tuple[EventRecord, ...]]).decode


def encode_events(events: Sequence[Event]) -> str:
    """The events of one turn, numbered without a gap, and when the first of them was."""
    first_at = events[0].at
    return _encode((first_at, [_values(event, first_at) for event in events])).decode()


def _values(event: Event, first_at: Instant) -> tuple[Any, ...]:
    """The fields of `EventRecord`."""
    data = event.data.copy()
    step_status, job_status = data.pop("step_status", None), data.pop("job_status", None)
    values = (
        event.at - first_at, event.type, event.step_id, event.attempt_no, _step_places.get(step_status, step_status),
        _job_places.get(job_status, job_status),
    )  # fmt: skip
    return (*values, data) if data else values


def read_events(last_seq: int, text: str) -> list[Event]:
    first_at, records = _decode(text)
    events = []
    for seq, record in enumerate(records, last_seq - len(records) + 1):
        data = record.data
        for name, status, names in (
            ("step_status", record.step_status, STEP_STATUSES),
            ("job_status", record.job_status, JOB_STATUSES),
        ):
            if status is not None:
                data[name] = names[status] if isinstance(status, int) else status
        events.append(Event(seq, first_at + record.since_first, record.type, record.step_id, record.attempt_no, data))
    return events
