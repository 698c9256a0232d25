"""Explains in sentences what a batch or member waits for, and what to do next. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lucius.cli.jobs.why import Explanation
from lucius.cli.output.formatting import counted, moment_text, text_of
from lucius.cli.runbooks.progress import ENDED, ENDINGS, batch_status, unsuccessful_count, verdict_of, waits_of

Item = Mapping[str, Any]


def sentence(fragment: Any) -> str:
    """With a capital and a full stop: the server sends parts of sentences."""
    text = text_of(fragment)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def explain_batch(batch: Item, now: datetime) -> Explanation:
    number = text_of(batch.get("batch_id"))
    name = f"Batch {number} ({text_of(batch.get('runbook'))}, version {text_of(batch.get('version'))})"
    if batch.get("status") in ENDED:
        at = moment_text(batch.get("completed_at"), now) if batch.get("completed_at") else ""
        verdict = verdict_of(batch)
        sentences = [f"{name} {ENDINGS.get(verdict, verdict)}{f' at {at}' if at else ''}."]
    else:
        sentences = [f"{name} is {batch_status(batch)}."]
    reason = text_of(batch.get("hold_reason") or batch.get("error"))
    sentences += [sentence(f"The reason: {reason}")] if reason else []
    sentences += [sentence(wait) for wait in waits_of(batch)]
    failed = int((batch.get("members") or {}).get("failed") or 0)
    sentences += _unsuccessful(batch, failed)
    return Explanation(sentences, _next(batch, number, failed))


def _unsuccessful(batch: Item, failed: int) -> list[str]:
    """The members that did not succeed, by name, as far as the server names them."""
    count = unsuccessful_count(batch)
    named = [_stopped(one) for one in (batch.get("unsuccessful") or {}).get("members") or ()]
    if not named:
        return [f"{counted(failed, 'member has', 'members have')} failed."] if failed else []
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return [sentence(f"{counted(count, 'member')} did not succeed: {', '.join(named)}{more}")]


def _stopped(one: Item) -> str:
    error = f": {text_of(one['error'])}" if one.get("error") else ""
    where = f"step {text_of(one.get('step'))} of phase {text_of(one.get('phase'))}"
    return f"{text_of(one.get('member'))} ({where} {text_of(one.get('status'))}{error})"


def _next(batch: Item, number: str, failed: int) -> list[tuple[str, str]]:
    is_open = batch.get("status") not in ENDED
    if verdict_of(batch) == "cancelled":
        create = f"lucius batch create {text_of(batch.get('runbook'))} --csv FILE"
        return [
            (f"lucius batch export {number}", "its members and how far each came"),
            (create, "a cancelled batch does not go on: create a new one from its members"),
        ]
    has_pending = any(phase.get("status") == "pending" for phase in batch.get("phase_list") or ())
    commands = []
    if is_open and batch.get("paused_at"):
        commands.append((f"lucius batch resume {number}", "continue where it was paused"))
    elif is_open and batch.get("held_at"):
        commands.append((f"lucius batch resume {number}", "continue; the failure count restarts"))
    if is_open and int((batch.get("members") or {}).get("held") or 0):
        commands.append((f"lucius batch grid {number} --status held", "which members are held"))
        commands += _held_commands(number, "")
    name = text_of(batch.get("runbook"))
    if is_open and source_trouble(batch):
        if (batch.get("source") or {}).get("state") == "held":
            commands.append((f"lucius runbook confirm {name}", "its source is right: remove who is missing"))
        commands.append((f"lucius runbook preview {name}", "read its source now, and see what is wrong with it"))
    if any(message.get("can_be_sent") for message in batch.get("dead_messages") or ()):
        commands.append((f"lucius batch send-again {number}", "send its dead messages again"))
    if failed:
        commands.append((f"lucius batch grid {number} --status failed", "which members failed, where, and why"))
        commands.append((f"lucius batch retry {number}", "retry failed members from the failed step"))
    elif (
        not is_open
        and batch.get("status") == "failed"
        and any(step.get("status") not in ("succeeded", "cancelled") for step in batch.get("init") or ())
    ):
        commands.append((f"lucius batch retry {number}", "retry init from the step that failed"))
    if (
        is_open
        and batch.get("status") == "active"
        and has_pending
        and not (batch.get("held_at") or batch.get("paused_at"))
    ):
        commands.append((f"lucius batch advance {number}", "begin the next phase now, regardless of when it is due"))
    if is_open and not batch.get("paused_at"):
        commands.append((f"lucius batch pause {number}", "send nothing new until it is resumed"))
    if is_open:
        commands.append((f"lucius batch watch {number}", "follow its progress"))
        commands.append((f"lucius batch cancel {number}", "send nothing more"))
    return commands


def source_trouble(batch: Item) -> str:
    """Why the source of an open batch changes no member, if so."""
    source = batch.get("source") or {}
    what = {"failed": "could not be read", "held": "is held"}.get(str(source.get("state")))
    if what is None or batch.get("status") in ENDED:
        return ""
    return f"the source of runbook {text_of(batch.get('runbook'))} {what}: {text_of(source.get('detail'))}"


def _held_commands(number: str, member: str) -> list[tuple[str, str]]:
    who = f"{number} {member}".strip()
    return [
        (f"lucius batch confirm-move {who}", "let it move: its removal steps run, and it is booked at its new date"),
        (f"lucius batch keep {who}", "go on in this batch, whatever date the source has"),
    ]


def explain_member(batch: Item, member: Item, now: datetime) -> Explanation:
    number, key = text_of(batch.get("batch_id")), text_of(member.get("member"))
    state = "removed" if member.get("status") == "removed" else "active"
    if member.get("failed_at"):
        state += ", and has failed"
    sentences = [
        f"{key} is {state}, in batch {number} ({text_of(batch.get('runbook'))}), which is {batch_status(batch)}."
    ]
    if member.get("waiting_for"):
        sentences.append(sentence(member["waiting_for"]))
    trouble = source_trouble(batch)
    sentences += [sentence(trouble)] if trouble else []
    for step in member.get("steps") or ():
        if step.get("error"):
            where = f"{text_of(step.get('phase'))} / {text_of(step.get('step'))}"
            sentences.append(sentence(f"Step {where}: {text_of(step.get('status'))}, {text_of(step['error'])}"))
    for step in member.get("followups") or ():
        error = f", {text_of(step['error'])}" if step.get("error") else ""
        what = f"{text_of(step.get('kind'))} step {text_of(step.get('step'))}"
        sentences.append(sentence(f"{what}: {text_of(step.get('status'))}{error}"))
    commands = []
    if member.get("move_held_at") and member.get("status") == "active" and batch.get("status") not in ENDED:
        commands += _held_commands(number, key)
    if member.get("failed_at") and state != "removed":
        commands.append((f"lucius batch retry {number} {key}", "retry the failed step, and continue from there"))
    if member.get("status") == "active" and batch.get("status") not in ENDED:
        commands.append((f"lucius batch remove {number} {key}", "remove it; the runbook's removal steps run"))
    return Explanation(sentences, commands)
