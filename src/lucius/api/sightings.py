"""What a caller that asks for work tells about itself, and who has asked."""

from __future__ import annotations

from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.endpoint import Call, answer
from lucius.api.requests import Parameters, find_header
from lucius.domain.time import iso
from lucius.ports.workers import WorkerKind
from lucius.usecases.sightings import INSTANCE_CHARS_MAX, Sightings

INSTANCE_HEADER, VERSION_HEADER, IN_WORK_HEADER = "Lucius-Instance", "Lucius-Version", "Lucius-In-Work"
IN_WORK_DIGITS_MAX = 6


def saw(call: Call, kind: WorkerKind, name: str, taken: int = 0) -> None:
    """Note that the caller asks for work; `taken` is what it is about to get."""
    told = _told(call, IN_WORK_HEADER)
    in_work = None
    if told is not None and told.isascii() and told.isdigit() and len(told) <= IN_WORK_DIGITS_MAX:
        in_work = int(told) + taken
    call.context.sightings.saw(
        kind, name, _told(call, INSTANCE_HEADER) or call.caller.name, _told(call, VERSION_HEADER), in_work
    )


def _told(call: Call, header: str) -> str | None:
    value = find_header(call.request, header.lower().encode())
    text = None if value is None else value.decode("latin-1").strip()[:INSTANCE_CHARS_MAX]
    return text if text and text.isprintable() else None


async def list_workers(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(admin_answers.WorkerList(items=show_workers(call.context.sightings), next=None))


def show_workers(sightings: Sightings) -> list[admin_answers.WorkerSeen]:
    return [
        {
            "kind": one.kind,
            "name": one.name,
            "instance": one.instance,
            "version": one.version,
            "in_work": one.in_work,
            "present": sightings.is_there(one),
            "failed_last_hour": sightings.failures(one),
            "first_seen_at": iso(one.first_seen_at),
            "last_seen_at": iso(one.last_seen_at),
        }
        for one in sightings.all()
    ]


def worker_failed(call: Call, count: int) -> None:
    """Jobs that the caller has answered had failed."""
    if count:
        call.context.sightings.worker_failed(_told(call, INSTANCE_HEADER) or call.caller.name, count)
