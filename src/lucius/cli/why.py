"""Why a job waits, or how it ended, in sentences, and what to do next. Pure: the time is an argument.

The server's `waiting_on` says for what a job waits. What will happen when that wait is over follows from the rules in
docs/reference/states.md, and is said here in full only as far as the job's JSON bears it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lucius.cli.render import Job, Step, ref_text, waiting_of
from lucius.cli.wording import distance, error_text, moment, moment_text, text_of, time_taken

OVERDUE_SECONDS = 10.0
"""Timers are looked at every second or so; one that ran out this long ago is looked at by nobody."""

ENDED = {"SUCCEEDED": "succeeded", "FAILED_FINAL": "failed for good", "CANCELLED": "was cancelled"}

CAUSES = {
    "ACK_TIMEOUT": "No worker of the service picked the directive up and acknowledged it in time.",
    "LEASE_EXPIRED": "The worker picked it up and was not heard of again: it died, or sends no heartbeats.",
    "STEP_TIMEOUT": "The worker reported in time, but needed longer than max_step_seconds allows.",
    "PUBLISH_FAILED": "The bus refused the directive; the server's log says why.",
    "PUBLISH_LOST": "Nobody knows whether the bus took the directive, so it counts as failed.",
    "DEADLINE_EXCEEDED": "The job had until its deadline, however its steps were doing.",
}
"""What the codes mean that LUCIUS gives itself; a service's own are told by their message."""


@dataclass(frozen=True)
class Explanation:
    sentences: list[str]
    commands: list[tuple[str, str]]
    """What to do next, each with what it is good for."""


def explain(job: Job, events: Iterable[Mapping[str, Any]], now: datetime) -> Explanation:
    """`job` has its steps with their attempts; `events` tell who cancelled it, if anybody did."""
    name = f"Job {text_of(job.get('jobId'))} ({text_of(job.get('request_type'))} of {text_of(job.get('tenant_id'))})"
    place, step = _current(job)
    if job.get("status") in ENDED:
        sentences = [*_end(name, job, step, now), *_cancellation(events, now)]
        if job.get("status") != "SUCCEEDED":
            sentences += _earlier(step, now, len(_attempts(step)))
        return Explanation([one for one in sentences if one], _after_end(job, step))
    count = len(job.get("steps") or ())
    where = f"step {text_of(step.get('stepId'))} ({place} of {count})" if step else ""
    attempt_no = int(step.get("attempt_no") or 0)
    tried = f"attempt {attempt_no}" if attempt_no else "not tried yet"
    sentences = [
        f"{name} is {text_of(job.get('status'))}" + (f", at {where}, {tried}." if where else "."),
        *_wait(job, step, now),
        *_cancellation(events, now),
        *_earlier(step, now, attempt_no),
    ]
    return Explanation([one for one in sentences if one], _next(job, step))


def explanation_lines(explanation: Explanation) -> list[str]:
    if not explanation.commands:
        return explanation.sentences
    return [*explanation.sentences, "Next:", *(f"  {command}\n      {use}" for command, use in explanation.commands)]


# --- A job that waits ------------------------------------------------------------------------------------------------


def _wait(job: Job, step: Step, now: datetime) -> list[str]:
    waiting = waiting_of(job)
    sentence = text_of(waiting.get("sentence") or waiting.get("what"))
    if not sentence:
        return ["The server does not say what it waits for."]
    spans = []
    if moment(waiting.get("since")):
        spans.append(f"Since {moment_text(waiting.get('since'), now)}")
    until = moment(waiting.get("until"))
    if until:
        spans.append(f"{'until' if spans else 'Until'} {moment_text(waiting.get('until'), now)}")
    then = _then(job, step)
    if until and (now - until).total_seconds() > OVERDUE_SECONDS:
        then = "That moment has passed and nothing came of it: does `lucius up` or `lucius reconciler` run?"
    return [sentence, f"{', '.join(spans)}." if spans else "", then]


def _then(job: Job, step: Step) -> str:
    """What happens when the wait is over, and nothing else came in between."""
    what, status = waiting_of(job).get("what"), job.get("status")
    service = text_of(step.get("service"))
    again = "the step is tried again as long as attempts are left"
    if status == "CANCELLING":
        again = "the job ends CANCELLED"
    elif status == "PAUSED":
        again = "the step is tried again, as long as attempts are left, once the job is resumed"
    by_deadline = "CANCELLED" if status == "CANCELLING" else "FAILED_FINAL with DEADLINE_EXCEEDED"
    match what:
        case "START":
            return f"Then its first attempt is handed to service {service}."
        case "BUS":
            return f"If the bus has not taken it by then, the job ends {by_deadline}. No attempt is used up by waiting."
        case "ACK":
            queued = "If the directive still lies in its queue then, the wait goes on"
            return f"{queued}; if a worker took it and did not acknowledge it, the attempt has failed, and {again}."
        case "RESULT":
            return f"Each heartbeat moves that moment on; without one the attempt has failed then, and {again}."
        case "RETRY":
            return f"Then attempt {int(step.get('attempt_no') or 0) + 1} is handed to service {service}."
        case "RESUME":
            return f"If nobody has resumed it by then, the job ends {by_deadline}."
    return ""


def _next(job: Job, step: Step) -> list[tuple[str, str]]:
    job_id, what, status = text_of(job.get("jobId")), waiting_of(job).get("what"), job.get("status")
    lane, service = text_of(job.get("lane")), text_of(step.get("service"))
    resume = (f"lucius resume {job_id}", "lets it go on")
    lanes = ("lucius lanes", f"shows what waits for {service} on lane {lane}; if it stays, no worker takes it")
    watch = (f"lucius watch {job_id}", "follows it")
    cancel = (f"lucius cancel {job_id}", "gives it up")
    by_kind: dict[Any, list[tuple[str, str]]] = {
        "START": [cancel],
        "BUS": [watch, cancel],
        "ACK": [lanes, watch],
        "RESULT": [watch],
        "RETRY": [*([lanes] if _code(step) == "ACK_TIMEOUT" else []), watch, cancel],
        "RESUME": [resume, cancel],
    }
    found = by_kind.get(what, [watch])
    if status == "CANCELLING":
        return [one for one in found if one is not cancel]
    return [resume, *found] if status == "PAUSED" and resume not in found else found


# --- A job that has ended --------------------------------------------------------------------------------------------


def _end(name: str, job: Job, step: Step, now: datetime) -> list[str]:
    status, at = str(job.get("status")), job.get("completed_at")
    taken = time_taken(job.get("created_at"), at, now)
    first = f"{name} {ENDED[status]}" + (f" at {moment_text(at, now)}" if moment(at) else "")
    first += f", {taken} after it was accepted." if taken and moment(at) else "."
    if status == "SUCCEEDED":
        ref = ref_text(job.get("output_ref"))
        return [first, f"All its steps are done. The result was to go to {ref}." if ref else "All its steps are done."]
    error = error_text(job.get("error"))
    where = f"step {text_of(step.get('stepId'))}" if step else "its step"
    if status == "CANCELLED":
        return [first, f"It was at {where}.", f"Error: {error}" if error else ""]
    tried = f", attempt {step['attempt_no']}" if step.get("attempt_no") else ""
    cause = CAUSES.get(text_of((job.get("error") or {}).get("code")), "")
    return [first, f"It ended at {where}{tried}: {error or 'no reason was given'}", cause]


def _after_end(job: Job, step: Step) -> list[tuple[str, str]]:
    job_id = text_of(job.get("jobId"))
    if job.get("status") == "SUCCEEDED":
        return []
    lanes = [("lucius lanes", "shows whether anybody takes directives")] if _code(job) == "ACK_TIMEOUT" else []
    begins = f" from step {text_of(step.get('stepId'))}" if step else ""
    redrive = (f"lucius redrive {job_id}", f"starts a new job{begins}, once the cause is mended")
    return [*lanes, redrive, (f"lucius events {job_id}", "shows everything that happened")]


# --- What both need --------------------------------------------------------------------------------------------------


def _current(job: Job) -> tuple[int, Step]:
    """The step at which the job is, and its place, counted from one."""
    steps: Sequence[Step] = job.get("steps") or ()
    for place, step in enumerate(steps, start=1):
        if step.get("stepId") == job.get("current_step_id"):
            return place, step
    return 0, {}


def _code(holder: Mapping[str, Any]) -> str:
    error = holder.get("error")
    return text_of(error.get("code")) if isinstance(error, Mapping) else ""


def _attempts(step: Step) -> list[Mapping[str, Any]]:
    return list(step.get("attempts") or ())


def _earlier(step: Step, now: datetime, before_no: int) -> list[str]:
    """How the last attempt before this one failed."""
    failed = [one for one in _attempts(step) if error_text(one.get("error")) and one.get("attempt_no", 0) < before_no]
    if not failed:
        return []
    last = max(failed, key=lambda one: int(one["attempt_no"]))
    ago = distance(last.get("ended_at"), now)
    when = f", {ago}," if ago else ""
    return [f"Before that, attempt {last['attempt_no']} failed{when} with {error_text(last['error'])}"]


def _cancellation(events: Iterable[Mapping[str, Any]], now: datetime) -> list[str]:
    asked = [event for event in events if event.get("type") == "CANCEL_ASKED"]
    if not asked:
        return []
    by, reason = text_of(asked[-1].get("by")), text_of(asked[-1].get("reason"))
    who = f" by {by}" if by else ""
    return [f"Cancelling was asked for{who}, {distance(asked[-1].get('at'), now)}" + (f": {reason}" if reason else ".")]
