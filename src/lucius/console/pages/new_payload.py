"""A redrive with another payload: that of the job as JSON, to be edited, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lucius.api.requests import REASON_CHARS_MAX
from lucius.console.envelopes import envelope_of
from lucius.console.forms import Form
from lucius.console.page import NOTICE, Act, Page, Shown, View
from lucius.console.pages.job import job_of
from lucius.domain.errors import CallerError, Fault
from lucius.domain.job import Job
from lucius.domain.strict_json import parse
from lucius.usecases.operate import REDRIVABLE

PATH = "/jobs/{job_id}/new-payload"
PAYLOAD_CHARS_MAX = 131_072


async def _frame(view: View) -> Mapping[str, Any]:
    job = await job_of(view)
    protocol = view.context.registry.snapshot().protocols.get(job.spec.protocol_id)
    payload = msgspec.json.encode(envelope_of(job, protocol)["payload"])
    return _form(view, job, msgspec.json.format(payload, indent=2).decode())


def _form(view: View, job: Job, payload: str, reason: str = "", faults: tuple[Fault, ...] = ()) -> dict[str, Any]:
    return {
        "job_id": job.job_id, "request_type": job.spec.request_type, "tenant_id": job.spec.tenant_id,
        "refusal": _refusal(view, job), "payload": payload, "chars_max": PAYLOAD_CHARS_MAX, "reason": reason,
        "faults": faults,
    }  # fmt: skip


def _refusal(view: View, job: Job) -> str | None:
    if job.status not in REDRIVABLE:
        return f"Only a job that failed or was cancelled can be redriven; this one is {job.status.value}."
    return None if view.visitor.may("submit") else "This needs the role submit too: it is a new command."


async def _redrive(view: View, form: Form) -> str | Shown:
    principal, context, job = view.visitor.principal, view.context, await job_of(view)
    view.require("submit")
    text, reason = form.text("payload", PAYLOAD_CHARS_MAX), form.text("reason", REASON_CHARS_MAX)
    try:
        payload = parse(text.encode(), context.settings.body_depth_max - 1)
        instead = await context.acceptance.with_payload(job, payload, principal.sees)
        done = await context.operations.redrive(
            job.job_id, principal.sees, by=principal.name, reason=form.reason(), instead=instead
        )
    except CallerError as error:
        return Shown(PAGE, _form(view, job, text, reason, error.faults), error.status)
    return view.address(f"/jobs/{done.job_id}", **{NOTICE: "restated"})


PAGE = Page(
    path=PATH, title="Redrive with another payload", section="jobs", template="job_new_payload.html", load=_frame,
    role="operate",
)  # fmt: skip
ACTS = (Act(path=PATH, run=_redrive),)
