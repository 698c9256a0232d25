"""What people do with a runbook: publish it, try it out, rehearse it, and switch its automation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from lucius.api.runbook_requests import bytes_within, moment
from lucius.api.runbook_scope import read_runbook_name
from lucius.api.runbooks import BEHAVIOUR, PREVIEW_ROWS, RehearsalWanted, rehearsal_wish
from lucius.console.forms import FORM_BYTES_MAX, Form
from lucius.console.page import NOTICE, Act, Page, Shown, View
from lucius.console.pages.runbooks import name_of
from lucius.domain.errors import CallerError, Fault
from lucius.runbooks.core.definition.validation import validated
from lucius.runbooks.service.publishing import OVERDUE

CHECK = "check"
NUMBERS = ("count", "seed", "poll_rounds", "workers")


def _acted(view: View, name: str, notice: str) -> str:
    return view.address(f"/runbooks/{quote(name)}", **{NOTICE: notice})


# --- Publishing ------------------------------------------------------------------------------------------------------


async def _draft(view: View) -> Mapping[str, Any]:
    """An empty text, or the active one of a runbook, to change it."""
    name = view.query.get("name")
    if name is None:
        return _form("")
    view.runbook_scope.check_runbook(read_runbook_name(name))
    return _form((await view.context.runbooks.queries.runbook(name, None))["yaml"])


def _form(
    text: str, faults: tuple[Fault, ...] = (), checked: Mapping[str, Any] | None = None, overdue: str = OVERDUE[0],
    rerun_init: bool = False,
) -> dict[str, Any]:  # fmt: skip
    return {
        "text": text, "faults": faults, "checked": checked, "overdue": overdue, "overdues": OVERDUE,
        "rerun_init": rerun_init,
    }  # fmt: skip


async def _publish(view: View, form: Form) -> str | Shown:
    text, overdue, rerun = form.text("yaml", FORM_BYTES_MAX), form.text("overdue") or OVERDUE[0], form.text("rerun")
    content = f"{text}\n".encode()
    if form.text("do") == CHECK:
        found = await asyncio.to_thread(validated, content)
        faults = tuple(
            Fault("RUNBOOK_INVALID", one["pointer"], f"line {one['line']}: {one['message']}") for one in found["faults"]
        )
        return Shown(PUBLISH, _form(text, faults, found if found["valid"] else None, overdue, bool(rerun)))
    publishing = view.context.runbooks.publishing
    try:
        actor = view.visitor.principal.name
        done = await publishing.publish(content, actor, overdue, bool(rerun), scope=view.runbook_scope)
    except CallerError as error:
        return Shown(PUBLISH, _form(text, error.faults, None, overdue, bool(rerun)), error.status)
    return _acted(view, done["name"], "published" if done["published"] else "same")


# --- Trying out ------------------------------------------------------------------------------------------------------


async def _dry_run(view: View, form: Form) -> Shown:
    name = name_of(view)
    text, start = form.text("csv", FORM_BYTES_MAX), form.text("start", 40)
    csv = bytes_within(text + "\n", view.context.settings.members_bytes_max, "csv") if text else None
    begins = moment(start, "/start") if start else None
    found = await view.context.runbooks.queries.dry_run(name, csv, begins, PREVIEW_ROWS)
    members = found["members"]
    params = [[msgspec.json.encode(step["params"]).decode() for step in member["steps"]] for member in members]
    return Shown(DRY_RUN, {"title": f"Dry run of {name}", "found": found, "params": params})


async def _rehearse(view: View, form: Form) -> str:
    name = name_of(view)
    typed: dict[str, Any] = {one: form.text(one, 40) or None for one in (*BEHAVIOUR, "count", "seed", "start")}
    typed["csv"] = form.text("csv", FORM_BYTES_MAX) or None
    if typed["csv"] is not None:
        typed["csv"] += "\n"
        typed["count"] = None  # The form has a number in it from the start.
    for one in NUMBERS:
        if typed[one] is not None:
            typed[one] = form.number(one, 0, 10**9)
    named = {one: value for one, value in typed.items() if value is not None}
    try:
        wanted = msgspec.convert(named, RehearsalWanted)
    except msgspec.ValidationError as error:
        raise CallerError.of("ENVELOPE_INVALID", f"the rehearsal: {error}") from None
    wish = rehearsal_wish(wanted, view.context.settings.members_bytes_max)
    done = await view.context.runbooks.rehearsals.make(name, wish, view.visitor.principal.name)
    return view.address(f"/runbooks/{quote(name)}/rehearsals/{done['rehearsal_id']}")


# --- Automation ------------------------------------------------------------------------------------------------------


async def _stop(view: View, form: Form) -> str:
    name = name_of(view)
    await view.context.runbooks.publishing.set_automation(name, False, view.visitor.principal.name, form.reason())
    return _acted(view, name, "stopped")


async def _start(view: View, form: Form) -> str:
    name = name_of(view)
    await view.context.runbooks.publishing.set_automation(name, True, view.visitor.principal.name, form.reason())
    return _acted(view, name, "started")


async def _retire(view: View, form: Form) -> str:
    name = name_of(view)
    await view.context.runbooks.publishing.retire(name, view.visitor.principal.name, form.reason())
    return _acted(view, name, "retired")


async def _confirm(view: View, form: Form) -> str:
    name = name_of(view)
    await view.context.runbooks.publishing.confirm_source(name, view.visitor.principal.name, form.reason())
    return _acted(view, name, "confirmed")


PUBLISH = Page(
    path="/publish-runbook", title="Publish a runbook", section="runbooks", template="runbook_publish.html",
    load=_draft, role="admin",
)  # fmt: skip
DRY_RUN = Page(path="", title="Dry run", section="runbooks", template="runbook_dry_run.html")
"""Only the answer to a form."""
ACTS = (
    Act(path="/publish-runbook", run=_publish, role="admin"),
    Act(path="/runbooks/{name}/dry-run", run=_dry_run),
    Act(path="/runbooks/{name}/rehearse", run=_rehearse),
    Act(path="/runbooks/{name}/stop", run=_stop),
    Act(path="/runbooks/{name}/start", run=_start),
    Act(path="/runbooks/{name}/confirm", run=_confirm),
    Act(path="/runbooks/{name}/retire", run=_retire, role="admin"),
)
