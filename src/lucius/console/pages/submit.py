"""Submit: a form made from the schemas of a protocol, checked as the API checks, and then the job to watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lucius.api.requests import JOB_ID
from lucius.console.envelopes import envelope_of
from lucius.console.forms import Form
from lucius.console.page import Act, Page, Shown, View
from lucius.console.schema_form import (
    TEXT,
    Field,
    StepFields,
    faults_by_field,
    fields_of,
    payload_of,
    shown,
    typed,
)
from lucius.domain.errors import CallerError, Fault
from lucius.domain.protocol import Protocol
from lucius.domain.routing import Mode
from lucius.domain.strict_json import parse

ENVELOPE_CHARS_MAX = 131_072
SCHEMA_VERSION = "1"
TYPE = "request_type"
CHECK = "check"


def _plain(name: str, words: str, hint: str = "", is_required: bool = False, **more: Any) -> Field:
    return Field(pointer=f"/{name}", words=words, kind=TEXT, hint=hint, is_required=is_required, **more)


FIRST = (
    _plain("tenant_id", "Tenant", is_required=True, chars_max=128),
    _plain("input_ref", "Input", "a URI, or a JSON object with uri", is_required=True),
    _plain("output_ref", "Output", "a URI, or a JSON object with uri", is_required=True),
)
MORE = (
    _plain("idempotency_key", "Idempotency key", "the same key is the same job", chars_max=256),
    _plain("doc_id", "Document id", "needed for the mode BURST", chars_max=256),
    _plain("correlation_id", "Correlation id", chars_max=128),
    _plain("not_before", "Not before", "a time with its zone, such as 2026-01-31T08:00:00Z", chars_max=40),
)
MODES = ("", *(mode.value for mode in Mode))


def _protocol(view: View, request_type: str) -> Protocol | None:
    return view.context.registry.snapshot().request_types.get(request_type)


async def _frame(view: View) -> Mapping[str, Any]:
    query = view.query
    like, envelope = query.get("like"), {}
    if like is not None:
        envelope = await _envelope_like(view, like)
    request_type = query.get(TYPE) or envelope.get(TYPE, "")
    if request_type and _protocol(view, request_type) is None:
        raise CallerError.of("REQUEST_TYPE_UNKNOWN", f"no protocol serves the request type {request_type[:80]!r}")
    if query.get("as") == "json":
        return _as_json(view, _pretty(envelope or _example(request_type)))
    values = shown(_all(_steps(view, request_type)), envelope)
    return _form(view, request_type, values, mode=str(envelope.get("mode", "")))


async def _envelope_like(view: View, job_id: str) -> dict[str, Any]:
    if not JOB_ID.fullmatch(job_id):
        raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
    job = await view.context.queries.job(job_id, view.visitor.principal.sees)
    return envelope_of(job, view.context.registry.snapshot().protocols.get(job.spec.protocol_id))


def _steps(view: View, request_type: str) -> list[StepFields]:
    protocol = _protocol(view, request_type)
    return [] if protocol is None else fields_of(protocol)


def _all(steps: list[StepFields]) -> list[Field]:
    return [*FIRST, *MORE, *(field for step in steps for field in step.fields)]


def _form(
    view: View, request_type: str, values: Mapping[str, str], mode: str = "", faults: tuple[Fault, ...] = (),
    checked: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    steps = _steps(view, request_type)
    at, elsewhere = faults_by_field((field.pointer for field in _all(steps)), faults)
    return {
        "request_types": sorted(view.context.registry.snapshot().request_types),
        "request_type": request_type,
        "protocol": _protocol(view, request_type),
        "first": FIRST, "more": MORE, "steps": steps, "values": values, "mode": mode, "modes": MODES,
        "at": at, "faults": elsewhere, "is_refused": bool(faults), "checked": checked, "envelope": None,
        "like": view.query.get("like"),
    }  # fmt: skip


def _as_json(
    view: View, envelope: str, faults: tuple[Fault, ...] = (), checked: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return _form(view, "", {}, faults=faults, checked=checked) | {"envelope": envelope, "faults": faults, "at": {}}


def _example(request_type: str) -> dict[str, Any]:
    return {
        "tenant_id": "", "request_type": request_type, "input_ref": "", "output_ref": "", "payload": {},
        "schema_version": SCHEMA_VERSION,
    }  # fmt: skip


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# --- Sent ------------------------------------------------------------------------------------------------------------


async def _submit(view: View, form: Form) -> str | Shown:
    depth_max = view.context.settings.body_depth_max
    text = form.text("envelope", ENVELOPE_CHARS_MAX)
    if text:
        try:
            return await _send(view, form, parse(text.encode(), depth_max), lambda **more: _as_json(view, text, **more))
        except CallerError as error:
            return Shown(PAGE, _as_json(view, text, faults=error.faults), error.status)
    request_type, mode = form.text(TYPE), form.text("mode", 20)
    steps = _steps(view, request_type)
    values = typed(_all(steps), form)
    payload, faults = payload_of([field for step in steps for field in step.fields], values, depth_max)

    def again(**more: Any) -> dict[str, Any]:
        return _form(view, request_type, values, mode, **more)

    if faults:
        return Shown(PAGE, again(faults=tuple(faults)), 422)
    envelope: dict[str, Any] = {TYPE: request_type, "payload": payload, "schema_version": SCHEMA_VERSION}
    envelope |= {field.pointer[1:]: _ref(values[field.pointer], depth_max) for field in FIRST}
    envelope |= {field.pointer[1:]: values[field.pointer] for field in MORE if values[field.pointer]}
    if mode:
        envelope["mode"] = mode
    return await _send(view, form, envelope, again)


def _ref(text: str, depth_max: int) -> Any:
    """An object if it looks like one; what is wrong with it, the validation says."""
    if not text.startswith("{"):
        return text
    try:
        return parse(text.encode(), depth_max)
    except CallerError:
        return text


async def _send(view: View, form: Form, envelope: Any, again: Any) -> str | Shown:
    acceptance, sees = view.context.acceptance, view.visitor.principal.sees
    try:
        if form.text("do") == CHECK:
            command = await acceptance.validate(envelope, sees)
            found = {"lane": command.routing.lane, "mode": command.routing.resolved_mode, "protocol": command.protocol}
            return Shown(PAGE, again(checked=found))
        taken = await acceptance.submit(envelope, sees)
    except CallerError as error:
        return Shown(PAGE, again(faults=error.faults), error.status)
    return view.address(f"/jobs/{taken.job_id}", notice="replayed" if taken.replayed else "submitted")


PAGE = Page(
    path="/submit", title="Submit a command", section="submit", template="submit.html", load=_frame, role="submit"
)
ACTS = (Act(path="/submit", run=_submit, role="submit"),)
