"""The list of jobs as somebody likes it: filters saved under a name, and the columns that are shown.

Views are kept on the server for a person or an API key; the columns are a matter of the screen, and kept in a cookie.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from starlette.responses import RedirectResponse, Response

from lucius.console.forms import Form
from lucius.console.page import Act, View
from lucius.domain.errors import CallerError
from lucius.ports.console_views import SavedView

PAGE = "jobs"
VIEWS_MAX = 50
NAME_CHARS_MAX = 60
QUERY_CHARS_MAX = 8_000
FILTERS = (
    "tenant_id", "status", "request_type", "created_from", "created_to", "error_signature", "waits_for",
    "correlation_id", "idempotency_key", "payload", "job_id_prefix",
)  # fmt: skip

COLUMNS = {
    "accepted": "Accepted", "tenant": "Tenant", "type": "Type", "status": "Status", "step": "Step",
    "reason": "Waits for, or why it failed", "ended": "Ended", "attempts": "Attempts", "correlation": "Correlation id",
    "key": "Idempotency key",
}  # fmt: skip
"""Besides the job's id, which is always shown."""
SHOWN_AT_FIRST = ("accepted", "tenant", "type", "status", "step", "reason")
COOKIE = "lucius_console_columns"
COOKIE_SECONDS = 31_536_000


def shown_columns(view: View) -> tuple[str, ...]:
    """In the order of `COLUMNS`."""
    kept = set(view.request.cookies.get(COOKIE, "").split("."))
    return tuple(name for name in COLUMNS if name in kept) or SHOWN_AT_FIRST


async def saved_views(view: View) -> list[tuple[SavedView, str]]:
    """With the address of each."""
    found = await view.context.console_views.all(view.visitor.owner_hash, PAGE)
    return [(one, view.address("/jobs", **dict(parse_qsl(one.query)))) for one in found]


def _filters(form: Form) -> dict[str, str]:
    """The filters of the list that a form was sent from."""
    query = form.text("query", QUERY_CHARS_MAX)
    try:
        filters = dict(parse_qsl(query, strict_parsing=True, max_num_fields=len(FILTERS))) if query else {}
    except ValueError:
        filters = {"": ""}
    if not filters.keys() <= set(FILTERS):
        raise CallerError.of("ENVELOPE_INVALID", "a view is made of the filters of the list, and this has others")
    return filters


async def _save(view: View, form: Form) -> str:
    name, filters = form.text("name", NAME_CHARS_MAX), _filters(form)
    if not name or not name.isprintable():
        raise CallerError.of("ENVELOPE_INVALID", "give the view a name of printable characters")
    kept = SavedView(name=name, query=urlencode(filters), created_at=view.context.clock.now())
    if not await view.context.console_views.save(view.visitor.owner_hash, PAGE, kept, VIEWS_MAX):
        raise CallerError.of("CONFLICT", f"you have {VIEWS_MAX} saved views, the maximum: remove some")
    return view.address("/jobs", **filters, notice="saved")


async def _remove(view: View, form: Form) -> str:
    await view.context.console_views.remove(view.visitor.owner_hash, PAGE, form.text("name", NAME_CHARS_MAX))
    return view.address("/jobs", notice="removed")


async def _keep_columns(view: View, form: Form) -> Response:
    chosen = [name for name in COLUMNS if form.text(f"column_{name}")]
    answer = RedirectResponse(view.address("/jobs", **_filters(form)), 303)
    answer.set_cookie(
        COOKIE, ".".join(chosen), max_age=COOKIE_SECONDS, path=view.site.base, secure=view.site.is_secure,
        httponly=True, samesite="strict",
    )  # fmt: skip
    return answer


NOTICES = {"saved": "The view is saved.", "removed": "The view is removed."}
ACTS = (
    Act(path="/jobs/views", run=_save, role="read"),
    Act(path="/jobs/views/remove", run=_remove, role="read"),
    Act(path="/jobs/columns", run=_keep_columns, role="read"),
)
