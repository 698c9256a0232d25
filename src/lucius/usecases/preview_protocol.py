"""What a protocol would do if it were published: jobs in flight, and payloads of late that it would refuse.

Reads jobs by the index of their request type, and only the newest: the cost does not depend on how many there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.errors import Fault
from lucius.domain.job import JOB_TERMINAL, Job, JobStatus
from lucius.domain.payload import PayloadPlan, pointer_token, pointer_tokens, private_plan, read_payload
from lucius.domain.protocol import Protocol
from lucius.ports.ledger import JobFilter, Ledger
from lucius.ports.registry import RegistrySnapshot

PAYLOADS_DEFAULT = 200
PAYLOADS_MAX = 1_000
OPEN_JOBS_MAX = 1_000
"""Jobs in flight that are looked at; beyond, the counts are of the newest."""
REFUSALS_SHOWN_MAX = 100
FAULTS_SHOWN_MAX = 5
SLICE_JOBS = 25
_OPEN = tuple(status.value for status in JobStatus if status not in JOB_TERMINAL)


class Refusal(Struct, frozen=True):
    """A job whose payload the protocol would refuse, and why. Values of the payload are not in it."""

    job: Job
    faults: tuple[Fault, ...]
    """The first of them."""
    fault_count: int


class Preview(Struct, frozen=True, kw_only=True):
    current: Protocol | None
    """What is in force under this protocol's id."""
    problems: tuple[str, ...]
    """Why the registry of this process would not take it."""
    in_flight: dict[int, int]
    """Jobs by the version that they were accepted under."""
    is_cut_off: bool
    """Whether there are more jobs in flight than were looked at."""
    payload_count: int
    refusal_count: int
    refusals: tuple[Refusal, ...]
    """Of the newest jobs."""
    dropped_request_types: tuple[str, ...]
    dropped_services: tuple[str, ...]
    """Which the version in force has. No directives are handed out for a service that no protocol names."""


async def preview_protocol(
    ledger: Ledger, snapshot: RegistrySnapshot, protocol: Protocol, payloads_max: int = PAYLOADS_DEFAULT
) -> Preview:
    """Raises `LedgerUnavailable`."""
    current = snapshot.protocols.get(protocol.id)
    served = dict.fromkeys((*protocol.request_types, *(current.request_types if current else ())))
    open_ids = await _newest(ledger, [JobFilter(request_type=one, statuses=_OPEN) for one in served], OPEN_JOBS_MAX + 1)
    in_flight: Counter[int] = Counter()
    for some in _slices(open_ids[:OPEN_JOBS_MAX]):
        found = (await ledger.load(some)).values()
        in_flight.update(job.spec.protocol_version for job in found if job.spec.protocol_id == protocol.id)
    newest = await _newest(ledger, [JobFilter(request_type=one) for one in protocol.request_types], payloads_max)
    plan = private_plan(protocol)
    refusals: list[Refusal] = []
    payload_count = 0
    for some in _slices(newest):
        loaded = await ledger.load(some)
        jobs = [loaded[job_id] for job_id in some if job_id in loaded]
        payload_count += len(jobs)
        refusals += await asyncio.to_thread(_refusals, jobs, plan, current)
    return Preview(
        current=current,
        problems=tuple(_problems(snapshot, protocol, current)),
        in_flight=dict(sorted(in_flight.items())),
        is_cut_off=len(open_ids) > OPEN_JOBS_MAX,
        payload_count=payload_count,
        refusal_count=len(refusals),
        refusals=tuple(refusals[:REFUSALS_SHOWN_MAX]),
        dropped_request_types=tuple(sorted(set(served) - set(protocol.request_types))),
        dropped_services=tuple(sorted(_services(current) - _services(protocol))),
    )


def _problems(snapshot: RegistrySnapshot, protocol: Protocol, current: Protocol | None) -> Iterable[str]:
    if current is not None and current.version == protocol.version and current != protocol:
        yield f"version {protocol.version} of {protocol.id} is in force and differs: give the change a new version"
    if current is not None and current.version > protocol.version:
        yield f"version {current.version} of {protocol.id} is in force, and new jobs would go on getting it"
    for request_type in protocol.request_types:
        other = snapshot.request_types.get(request_type)
        if other is not None and other.id != protocol.id:
            yield f"the request type {request_type} is already served by {other.id}"


async def _newest(ledger: Ledger, filters: Sequence[JobFilter], limit: int) -> list[str]:
    ids = [key.job_id for one in filters for key in await ledger.matching(one, limit, None)]
    return sorted(ids, reverse=True)[:limit]


def _slices(job_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (job_ids[start : start + SLICE_JOBS] for start in range(0, len(job_ids), SLICE_JOBS))


def _refusals(jobs: Sequence[Job], plan: PayloadPlan, current: Protocol | None) -> list[Refusal]:
    found = []
    for job in jobs:
        _, faults = read_payload(payload_of(job, current), plan)
        if faults:
            found.append(Refusal(job, tuple(faults[:FAULTS_SHOWN_MAX]), len(faults)))
    return found


def payload_of(job: Job, current: Protocol | None) -> dict[str, Any]:
    """A job's payload as it was posted, put together from the parts that its steps have. Where those were is not kept
    with the job: the version in force knows, or else it is where steps have them by default."""
    pointers = {step.id: step.payload_pointer for step in current.steps} if current else {}
    default = "" if len(job.steps) == 1 else None
    payload: dict[str, Any] = {}
    parts = []
    for step in job.steps:
        own = f"/{pointer_token(step.spec.step_id)}" if default is None else default
        parts.append((pointer_tokens(pointers.get(step.spec.step_id, own)), msgspec.json.decode(step.spec.payload)))
    for tokens, part in sorted(parts, key=lambda one: len(one[0])):
        if part != {}:  # A step without parameters has this too.
            _put(payload, tokens, part)
    return payload


def _put(payload: dict[str, Any], tokens: tuple[str, ...], part: Any) -> None:
    if not tokens:
        if isinstance(part, dict):
            payload.update(part)
        return
    place: Any = payload
    for token in tokens[:-1]:
        if not isinstance(place, dict):
            return  # Within a list, which only a step that reads all around it has.
        place = place.setdefault(token, {})
    if isinstance(place, dict):
        place[tokens[-1]] = part


def _services(protocol: Protocol | None) -> set[str]:
    return set() if protocol is None else {step.service for step in protocol.steps}
