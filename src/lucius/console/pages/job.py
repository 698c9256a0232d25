"""One job: what it waits for, its timeline, everything recorded about it, and what can be done with it."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from lucius.api.job_views import show_event, show_job, show_step
from lucius.api.requests import JOB_ID
from lucius.console.envelopes import envelope_of
from lucius.console.forms import Form
from lucius.console.page import Act, Page, Piece, View
from lucius.console.timeline import LEFT, ROW_HEIGHT, WIDTH, draw
from lucius.domain.errors import CallerError
from lucius.domain.inputs import CancelAsked, ForceCancelAsked, PauseAsked, ResumeAsked
from lucius.domain.job import Job, JobStatus
from lucius.ports.ledger import Closing
from lucius.settings import TRACE_ID
from lucius.usecases.operate import REDRIVABLE

EVENTS_SHOWN = 200
NOTICES = {
    "cancelled": "The job is being cancelled.",
    "paused": "The job is paused.",
    "resumed": "The job goes on.",
    "redriven": "This job redrives the one before: it begins at the first step that was not done.",
    "restated": "This job redrives the one before with another payload: it begins at its first step.",
    "submitted": "The command was accepted as this job.",
    "replayed": "A command with the same key or content was accepted before: this is its job.",
}

_pretty = msgspec.json.format


def _id(view: View) -> str:
    job_id: str = view.request.path_params["job_id"]
    if not JOB_ID.fullmatch(job_id):
        raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
    return job_id


async def job_of(view: View) -> Job:
    return await view.context.queries.job(_id(view), view.visitor.principal.sees)


async def _stamp(view: View) -> Hashable:
    """A redrive or a dismissal changes what is shown, but not the job."""
    job = await job_of(view)
    closing = await _closing(view, job)
    return job.revision, None if closing is None else closing.at


async def _closing(view: View, job: Job) -> Closing | None:
    if job.status not in REDRIVABLE:
        return None
    return (await view.context.ledger.closings([job.job_id])).get(job.job_id)


async def _frame(view: View) -> Mapping[str, Any]:
    job = await job_of(view)
    return {"title": f"Job {job.job_id}", "job": show_job(job)}


def _actions(view: View, job: Job) -> list[str]:
    if not view.visitor.may("operate"):
        return []
    if job.status in REDRIVABLE:
        return ["redrive"]
    if job.is_terminal:
        return []
    if job.status is JobStatus.CANCELLING:
        return ["force"]
    return ["resume" if job.status is JobStatus.PAUSED else "pause", "cancel"]


async def _state(view: View) -> Mapping[str, Any]:
    job, queries = await job_of(view), view.context.queries
    attempts = await queries.attempts(job.job_id)
    return {
        "job": show_job(job, view.context.sightings.absent_service),
        "steps": [show_step(job, step, attempts.get(step.spec.step_id, [])) for step in job.steps],
        "timeline": draw(job, attempts, view.context.clock.now()),
        "closing": await _closing(view, job),
        "actions": _actions(view, job),
        **_trace(view, job),
        "width": WIDTH, "left": LEFT, "row_height": ROW_HEIGHT,
        "pretty": _json_text,
    }  # fmt: skip


def _trace(view: View, job: Job) -> Mapping[str, str | None]:
    """The id of its trace, and where to look at it if the setting says so."""
    traceparent, template = job.spec.traceparent, view.context.settings.console_trace_url
    trace_id = None if traceparent is None else traceparent.split("-")[1]
    is_linked = trace_id is not None and template != ""
    return {"trace_id": trace_id, "trace_address": template.replace(TRACE_ID, trace_id or "") if is_linked else None}


async def _events(view: View) -> Mapping[str, Any]:
    job = await job_of(view)
    first = max(0, job.event_seq - EVENTS_SHOWN)
    events, _ = await view.context.queries.events(job.job_id, first, EVENTS_SHOWN)
    known = {"seq", "at", "type", "stepId", "attempt_no"}
    rows = [
        (shown, {name: value for name, value in shown.items() if name not in known and value is not None})
        for shown in map(show_event, reversed(events))
    ]
    return {"rows": rows, "is_cut_off": first > 0, "encode": _json_text}


async def _command(view: View) -> Mapping[str, Any]:
    job = await job_of(view)
    protocols = view.context.registry.snapshot().protocols
    envelope = _json_text(envelope_of(job, protocols.get(job.spec.protocol_id)))
    address = view.context.settings.public_url
    quoted = shlex.quote(envelope)
    return {
        "envelope": envelope,
        "curl": f"curl {address}/v1/commands -H \"Authorization: Bearer $LUCIUS_API_KEY\""
        f" -H 'Content-Type: application/json' -d {quoted}",
        "lucius": f"echo {quoted} | lucius --url {address} submit -",
        "can_submit": view.visitor.may("submit"),
        "job_id": job.job_id,
    }  # fmt: skip


def _json_text(value: Any) -> str:
    return _pretty(msgspec.json.encode(value), indent=2).decode()


# --- Acts ------------------------------------------------------------------------------------------------------------


def _acted(view: View, job_id: str, notice: str) -> str:
    return view.address(f"/jobs/{job_id}", notice=notice)


async def _cancel(view: View, form: Form) -> str:
    by, job_id = view.visitor.principal.name, _id(view)
    asked = CancelAsked(by, form.reason(), None)
    await view.context.operations.apply(job_id, asked, view.visitor.principal.sees)
    return _acted(view, job_id, "cancelled")


async def _force(view: View, form: Form) -> str:
    by, job_id = view.visitor.principal.name, _id(view)
    await view.context.operations.apply(job_id, ForceCancelAsked(by, form.reason(), None), view.visitor.principal.sees)
    return _acted(view, job_id, "cancelled")


async def _pause(view: View, form: Form) -> str:
    asked = PauseAsked(view.visitor.principal.name, None, form.reason())
    await view.context.operations.apply(_id(view), asked, view.visitor.principal.sees)
    return _acted(view, _id(view), "paused")


async def _resume(view: View, form: Form) -> str:
    asked = ResumeAsked(view.visitor.principal.name, None, form.reason())
    await view.context.operations.apply(_id(view), asked, view.visitor.principal.sees)
    return _acted(view, _id(view), "resumed")


async def _redrive(view: View, form: Form) -> str:
    principal, reason = view.visitor.principal, form.reason()
    done = await view.context.operations.redrive(_id(view), principal.sees, by=principal.name, reason=reason)
    return _acted(view, done.job_id, "redriven")


def _follows(view: View) -> tuple[str, ...]:
    return (f"job:{_id(view)}",)


def _nothing(view: View) -> tuple[str, ...]:
    return ()


PAGE = Page(
    path="/jobs/{job_id}",
    title="Job",
    section="jobs",
    template="job.html",
    load=_frame,
    notices=NOTICES,
    pieces=(
        Piece(
            name="state", template="job_state.html", load=_state, follows=_follows, stamp=_stamp, seconds_max=2,
            every_seconds=10,
        ),
        Piece(name="events", template="job_events.html", load=_events, follows=_follows, stamp=_stamp),
        Piece(name="command", template="job_command.html", load=_command, follows=_nothing, seconds_max=600),
    ),
)  # fmt: skip
ACTS = (
    Act(path="/jobs/{job_id}/cancel", run=_cancel),
    Act(path="/jobs/{job_id}/force", run=_force),
    Act(path="/jobs/{job_id}/pause", run=_pause),
    Act(path="/jobs/{job_id}/resume", run=_resume),
    Act(path="/jobs/{job_id}/redrive", run=_redrive),
)
