"""Runbooks: publish, read, compare, switch on and off."""

from __future__ import annotations

from urllib.parse import quote

from lucius.client.call import Json, Script, get, post
from lucius.client.calls.pages import given, paged
from lucius.client.errors import content_of

EVENTS_LIMIT = 100
ROWS_LIMIT = 20


def runbook_path(name: str) -> str:
    return f"/v1/runbooks/{quote(name, safe='')}"


def list_runbooks() -> Script[Json]:
    """Every runbook, by its newest version."""
    return content_of((yield get("/v1/runbooks")))


def publish(
    text: str, *, overdue_behavior: str = "rerun", rerun_init: bool = False, stopped: bool = False
) -> Script[Json]:
    """Make a YAML text the active version of the runbook that it names. `stopped`: with its automation off."""
    body: Json = {"yaml": text, "overdue_behavior": overdue_behavior, "rerun_init": rerun_init}
    body |= {"stopped": True} if stopped else {}
    # Not repeatable: the second answer would say that nothing was published.
    return content_of((yield post("/v1/runbooks", body)))


def validate(text: str) -> Script[Json]:
    """Whether a YAML text is a runbook, and every fault with its line if not. Nothing is published."""
    return content_of((yield post("/v1/runbooks:validate", {"yaml": text}, is_repeatable=True)))


def get_runbook(name: str, *, version: int | None = None) -> Script[Json]:
    """A runbook's text (the newest by default) and its versions."""
    return content_of((yield get(runbook_path(name), given(version=version))))


def diff(name: str, before: int, after: int) -> Script[Json]:
    """The differences between two versions."""
    return content_of((yield get(runbook_path(name) + "/diff", {"from": str(before), "to": str(after)})))


def events(name: str, *, limit: int = EVENTS_LIMIT, cursor: str = "") -> Script[Json]:
    """The audit trail of a runbook and its batches, newest first."""
    return (yield from paged(runbook_path(name) + "/events", {}, limit, cursor))


def retire(name: str) -> Script[Json]:
    """Create no new batches; running batches continue."""
    return (yield from act(name, "retire"))


def stop(name: str) -> Script[Json]:
    """Stop automation: the source is not read, and no phase starts automatically."""
    return (yield from act(name, "stop"))


def start(name: str) -> Script[Json]:
    """Start automation again."""
    return (yield from act(name, "start"))


def confirm(name: str, *, reason: str | None = None) -> Script[Json]:
    """Confirm that a source with few members is correct: the next read may remove the missing members."""
    return (yield from act(name, "confirm", given(reason=reason)))


def preview(name: str, *, limit: int = ROWS_LIMIT) -> Script[Json]:
    """The first rows of the runbook's source, read now."""
    return content_of((yield post(f"{runbook_path(name)}:preview", {"limit": limit}, is_repeatable=True)))


def dry_run(name: str, *, csv: str | None = None, start: str | None = None, limit: int = ROWS_LIMIT) -> Script[Json]:
    """Every step with its parameters, for the members in `csv` or in the source. Nothing is written or sent."""
    body = {"limit": limit} | {key: value for key, value in (("csv", csv), ("start", start)) if value is not None}
    return content_of((yield post(f"{runbook_path(name)}:dry-run", body, is_repeatable=True)))


def act(name: str, verb: str, body: Json | None = None) -> Script[Json]:
    return content_of((yield post(f"{runbook_path(name)}:{verb}", body or {})))
