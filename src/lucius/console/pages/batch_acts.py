"""What people do with a batch and its members: the use cases of the API, each with a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lucius.api.runbook_requests import KEYS_MAX, bytes_within, moment
from lucius.console.forms import FORM_BYTES_MAX, Form
from lucius.console.page import NOTICE, Act, View
from lucius.console.pages.batch_address import batch_id
from lucius.domain.errors import CallerError
from lucius.runbooks.core.approvals import APPROVED, REFUSED
from lucius.runbooks.sources.rows import KEY_CHARS_MAX

PHASE_CHARS_MAX = 100
ActOnBatch = Callable[[View, int, Form, str], Awaitable[object]]


def _act(verb: str, notice: str, run: ActOnBatch) -> Act:
    async def act(view: View, form: Form) -> str:
        number, reason = batch_id(view), form.reason()
        await run(view, number, form, reason)
        member = form.text("member_page", 20)
        path = f"/batches/{number}/members/{member}" if member.isascii() and member.isdigit() else f"/batches/{number}"
        return view.address(path, **{NOTICE: notice})

    return Act(path=f"/batches/{{batch_id}}/{verb}", run=act)


def _keys(form: Form) -> list[str]:
    """A member's key on each line."""
    lines = [line.strip() for line in form.text("members", FORM_BYTES_MAX).splitlines()]
    keys = list(dict.fromkeys(line for line in lines if line))
    if len(keys) > KEYS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"name at most {KEYS_MAX} members")
    for key in keys:
        if len(key) > KEY_CHARS_MAX:
            raise CallerError.of("ENVELOPE_INVALID", f"a member's key has at most {KEY_CHARS_MAX} characters")
    return keys


async def _retry(view: View, number: int, form: Form, reason: str) -> None:
    operations = view.context.runbooks.operations
    await operations.retry(number, _keys(form) or None, view.visitor.principal.name, reason)


async def _remove(view: View, number: int, form: Form, reason: str) -> None:
    keys = _keys(form)
    if not keys:
        raise CallerError.of("ENVELOPE_INVALID", "name the members to remove, one on each line")
    await view.context.runbooks.operations.remove(number, keys, view.visitor.principal.name, reason)


async def _add(view: View, number: int, form: Form, reason: str) -> None:
    text = form.text("csv", FORM_BYTES_MAX)
    if not text:
        raise CallerError.of("ENVELOPE_INVALID", "paste a CSV: a line that names the columns, and one for each member")
    csv = bytes_within(text + "\n", view.context.settings.members_bytes_max, "csv")
    await view.context.runbooks.operations.add_members(number, csv, view.visitor.principal.name, reason)


async def _cancel(view: View, number: int, form: Form, reason: str) -> None:
    await view.context.runbooks.operations.cancel(number, reason, view.visitor.principal.name)


async def _resume(view: View, number: int, form: Form, reason: str) -> None:
    await view.context.runbooks.operations.resume(number, view.visitor.principal.name, reason)


async def _pause(view: View, number: int, form: Form, reason: str) -> None:
    await view.context.runbooks.operations.pause(number, view.visitor.principal.name, reason)


async def _reschedule(view: View, number: int, form: Form, reason: str) -> None:
    start = moment(form.text("start", 40), "/start")
    await view.context.runbooks.operations.reschedule(number, start, view.visitor.principal.name, reason)


async def _advance(view: View, number: int, form: Form, reason: str) -> None:
    await view.context.runbooks.operations.advance(number, view.visitor.principal.name, reason)


async def _confirm_source(view: View, number: int, form: Form, reason: str) -> None:
    batch = await view.context.runbooks.queries.batch(number)
    publishing = view.context.runbooks.publishing
    await publishing.confirm_source(batch["runbook"], view.visitor.principal.name, reason)


async def _confirm_move(view: View, number: int, form: Form, reason: str) -> None:
    operations = view.context.runbooks.operations
    await operations.confirm_move(number, _keys(form) or None, view.visitor.principal.name, reason)


async def _keep(view: View, number: int, form: Form, reason: str) -> None:
    await view.context.runbooks.operations.keep(number, _keys(form) or None, view.visitor.principal.name, reason)


def _decider(decision: str) -> ActOnBatch:
    async def decide(view: View, number: int, form: Form, reason: str) -> None:
        caller = view.visitor.principal
        operations = view.context.runbooks.operations
        await operations.decide(number, form.text("phase", PHASE_CHARS_MAX), decision, caller.name, caller.may, reason)

    return decide


ACTS = (
    _act("approve", "approved", _decider(APPROVED)),
    _act("refuse", "refused", _decider(REFUSED)),
    _act("retry", "retried", _retry),
    _act("remove", "removed", _remove),
    _act("add", "added", _add),
    _act("cancel", "cancelled", _cancel),
    _act("pause", "paused", _pause),
    _act("resume", "resumed", _resume),
    _act("reschedule", "rescheduled", _reschedule),
    _act("advance", "advanced", _advance),
    _act("confirm-source", "confirmed", _confirm_source),
    _act("confirm-move", "moved", _confirm_move),
    _act("keep", "kept", _keep),
)
