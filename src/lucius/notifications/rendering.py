"""A notification in words, as values for templates, and as the body of a call."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from lucius.domain.notifications import JSON, TEMPLATE_DEFAULT, Cause, Facts, fill
from lucius.domain.time import iso
from lucius.notifications.store import Notification

_encode = msgspec.json.Encoder().encode


def title(facts: Facts) -> str:
    """One line, without line breaks: it may become the subject of an e-mail."""
    return " ".join(_title(facts).split())


def _title(facts: Facts) -> str:
    batch = f"batch {facts.batch_id} of runbook {facts.runbook}"
    match facts.cause:
        case Cause.BATCH_HELD:
            return f"Held: {batch}"
        case Cause.MEMBER_HELD:
            return f"A member is held in {batch}"
        case Cause.STEP_FAILED:
            return f"Steps failed in {batch}" if facts.count > 1 else f"A step failed in {batch}"
        case Cause.SOURCE_FAILED:
            return f"The source of runbook {facts.runbook} cannot be read"
        case Cause.SOURCE_HELD:
            return f"The source of runbook {facts.runbook} is held"
        case Cause.PHASE_ENDED:
            return f"Phase {facts.phase} {facts.status}: {batch}"
        case Cause.BATCH_ENDED:
            return f"{(facts.status or 'ended').capitalize()}: {batch}"
        case Cause.APPROVAL_NEEDED:
            return f"Approval needed: {_phase_of(facts)}{batch}"
        case Cause.APPROVAL_REFUSED:
            return f"Approval refused: {_phase_of(facts)}{batch}"
        case Cause.DEADLINE_NEAR if facts.runbook is not None:
            return f"Deadline near: {batch}"
        case Cause.DEADLINE_NEAR:
            return f"Deadline near: {_jobs(facts)}"
        case Cause.JOB_FAILED:
            return f"Failed: {_jobs(facts)}"
        case Cause.TEST:
            return f"Test notification of {facts.owner.replace(':', ' ', 1)}"


def _phase_of(facts: Facts) -> str:
    return f"phase {facts.phase}, " if facts.phase else ""


def _jobs(facts: Facts) -> str:
    named = f"job {facts.job_id}" if facts.count == 1 else f"{facts.count} jobs"
    return f"{named} of tenant {facts.tenant_id}"


def text(facts: Facts) -> str:
    """What is known beyond the title, a line for each."""
    lines = [facts.reason or ""]
    if facts.member:
        lines.append(f"Member: {facts.member}")
    if facts.request_type:
        lines.append(f"Request type: {facts.request_type}")
    if facts.due_at is not None:
        lines.append(f"Deadline: {iso(facts.due_at)}")
    if facts.count > 1:
        lines.append(f"This happened {facts.count} times; shown is the last time, {iso(facts.at)}.")
    return "\n".join(line for line in lines if line)


def link(facts: Facts, console: str) -> str | None:
    if not console:
        return None
    if facts.batch_id is not None:
        return f"{console}/batches/{facts.batch_id}"
    if facts.runbook is not None:
        return f"{console}/runbooks/{quote(facts.runbook)}"
    return f"{console}/jobs/{facts.job_id}" if facts.job_id is not None else None


def values(one: Notification, console: str) -> dict[str, Any]:
    """By the names of `FIELDS`."""
    facts = one.facts
    return {
        "id": message_id(one),
        "cause": facts.cause.value,
        "title": title(facts),
        "text": text(facts),
        "link": link(facts, console),
        "at": iso(facts.at),
        "count": facts.count,
        "runbook": facts.runbook,
        "batch_id": facts.batch_id,
        "phase": facts.phase,
        "member": facts.member,
        "tenant_id": facts.tenant_id,
        "job_id": facts.job_id,
        "request_type": facts.request_type,
        "status": facts.status,
        "reason": facts.reason,
        "due_at": None if facts.due_at is None else iso(facts.due_at),
    }


def message_id(one: Notification) -> str:
    """The same at every try."""
    return f"msg_{one.notification_id}"


def body(one: Notification, console: str) -> bytes:
    """The body of a call: the same bytes at every try."""
    said = values(one, console)
    if one.recipient.kind == JSON:
        template = one.recipient.template
        return _encode(fill(TEMPLATE_DEFAULT if template is None else template, said))
    del said["id"]
    return _encode({"type": f"notification.{one.facts.cause.value}", "timestamp": said["at"], "data": said})
