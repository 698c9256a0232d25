"""Explains in sentences why a job waits or how it ended, and what to do next. Pure: the time is an argument.

The server's `waiting_on` says what a job waits for. What happens after the wait follows from the rules in
docs/reference/states.md, and is stated only as far as the job's JSON supports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lucius.cli.jobs.render import Job, Step, instance_of, raised_at, ref_text, waiting_of
from lucius.cli.output.formatting import distance, error_text, moment, moment_text, text_of, time_taken
from lucius.cli.output.program import command_lines, hint

OVERDUE_SECONDS = 10.0
"""Timers are checked about every second; if one expired this long ago, nothing is checking it."""

QUIET_SECONDS = 60.0
"""After this long without progress, the way to end a step that hangs is shown."""

ENDED = {"SUCCEEDED": "succeeded", "FAILED_FINAL": "failed permanently", "CANCELLED": "was cancelled"}

CAUSES = {
    "ACK_TIMEOUT": "No worker of the service picked the directive up and acknowledged it in time.",
    "LEASE_EXPIRED": "The worker picked it up and then went silent: it died, or sends no heartbeats.",
    "STEP_TIMEOUT": "The worker reported in time, but needed longer than max_step_seconds allows.",
    "PUBLISH_FAILED": "The bus refused the directive; the server's log says why.",
    "PUBLISH_LOST": "It is unknown whether the bus took the directive, so it counts as failed.",
    "DEADLINE_EXCEEDED": "The job's deadline passed, whatever the state of its steps.",
}
"""Explanations of LUCIUS's own error codes; a service's codes are explained by their message."""


@dataclass(frozen=True)
class Explanation:
    sentences: list[str]
    commands: list[tuple[str, str]]
    """Commands to run next, each with its purpose."""


def explain(job: Job, events: Iterable[Mapping[str, Any]], now: datetime) -> Explanation:
    """`job` includes steps and attempts; `events` show who cancelled it, if anybody did."""
    name = f"Job {text_of(job.get('jobId'))} ({text_of(job.get('request_type'))} of {text_of(job.get('tenant_id'))})"
    position, step = _current(job)
    if job.get("status") in ENDED:
        sentences = [*_end(name, job, step, now), *_cancellation(events, now)]
        if job.get("status") != "SUCCEEDED":
            sentences += _earlier(step, now, len(_attempts(step)))
        return Explanation([sentence for sentence in sentences if sentence], _after_end(job, step))
    count = len(job.get("steps") or ())
    where = f"step {text_of(step.get('stepId'))} ({position} of {count})" if step else ""
    attempt_no = int(step.get("attempt_no") or 0)
    tried = f"attempt {attempt_no}" if attempt_no else "not tried yet"
    sentences = [
        f"{name} is {text_of(job.get('status'))}" + (f", at {where}, {tried}." if where else "."),
        *_wait(job, step, now),
        *_cancellation(events, now),
        *_earlier(step, now, attempt_no),
    ]
    return Explanation([sentence for sentence in sentences if sentence], _next(job, step, now))


def explanation_lines(explanation: Explanation) -> list[str]:
    sentences = [hint(sentence) for sentence in explanation.sentences]
    if not explanation.commands:
        return sentences
    return [*sentences, "Next:", *command_lines(explanation.commands)]


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
        then = "That time has passed and nothing happened: is `lucius up` or `lucius reconciler` running?"
    origin = _origin(step.get("error")) if waiting.get("what") == "RETRY" else []
    return [sentence, *origin, f"{', '.join(spans)}." if spans else "", _progress(waiting, step, now), then]


def _progress(waiting: Mapping[str, Any], step: Step, now: datetime) -> str:
    """The step's age, and how long ago its service last reported something new: heartbeats alone say nothing."""
    if waiting.get("what") != "RESULT" or "progress_at" not in waiting:
        return ""
    age = time_taken(step.get("started_at"), None, now)
    ago = distance(waiting.get("progress_at"), now)
    text = f"The step has been running for {age}" if age else "The step is running"
    return f"{text}; its last progress was {ago}." if ago else f"{text}, and its service has reported no progress."


def _then(job: Job, step: Step) -> str:
    """What happens when the wait is over, if nothing else happens first."""
    what, status = waiting_of(job).get("what"), job.get("status")
    service = text_of(step.get("service"))
    again = "the step is retried as long as attempts are left"
    if status == "CANCELLING":
        again = "the job ends CANCELLED"
    elif status == "PAUSED":
        again = "the step is retried once the job is resumed, as long as attempts are left"
    by_deadline = "CANCELLED" if status == "CANCELLING" else "FAILED_FINAL with DEADLINE_EXCEEDED"
    match what:
        case "START":
            return f"Then its first attempt is sent to service {service}."
        case "TENANT_CAP":
            return f"If its turn has not come by then, the job ends {by_deadline}. Waiting uses up no attempt."
        case "BUS":
            return f"If the bus has not taken it by then, the job ends {by_deadline}. Waiting uses up no attempt."
        case "ACK":
            queued = "If the directive is still in its queue then, the wait continues"
            return f"{queued}; if a worker took it and did not acknowledge it, the attempt fails, and {again}."
        case "RESULT":
            return f"Each heartbeat extends that time; without one the attempt fails, and {again}."
        case "RETRY":
            return f"Then attempt {int(step.get('attempt_no') or 0) + 1} is sent to service {service}."
        case "RESUME":
            return f"If nobody has resumed it by then, the job ends {by_deadline}."
    return ""


def _is_quiet(waiting: Mapping[str, Any], now: datetime) -> bool:
    """Whether a service has worked for long without reporting anything new."""
    last = moment(waiting.get("progress_at")) or moment(waiting.get("since"))
    return "progress_at" in waiting and last is not None and (now - last).total_seconds() > QUIET_SECONDS


def _next(job: Job, step: Step, now: datetime) -> list[tuple[str, str]]:
    job_id, what, status = text_of(job.get("jobId")), waiting_of(job).get("what"), job.get("status")
    lane, service = text_of(job.get("lane")), text_of(step.get("service"))
    resume = (f"lucius resume {job_id}", "continues it")
    lanes = ("lucius lanes", f"shows the backlog of {service} on lane {lane}; if it stays, no worker takes it")
    watch = (f"lucius watch {job_id}", "follows it")
    cancel = (f"lucius cancel {job_id}", "cancels it")
    force = (f'lucius cancel {job_id} --force --reason "…"', "ends it at once, if the step hangs")
    by_kind: dict[Any, list[tuple[str, str]]] = {
        "START": [cancel],
        "TENANT_CAP": [lanes, watch, cancel],
        "BUS": [watch, cancel],
        "ACK": [lanes, watch],
        "RESULT": [watch, force] if status == "CANCELLING" or _is_quiet(waiting_of(job), now) else [watch],
        "RETRY": [*([lanes] if _code(step) == "ACK_TIMEOUT" else []), watch, cancel],
        "RESUME": [resume, cancel],
    }
    found = by_kind.get(what, [watch])
    if status == "CANCELLING":
        return [command for command in found if command is not cancel]
    return [resume, *found] if status == "PAUSED" and resume not in found else found


# --- A job that has ended --------------------------------------------------------------------------------------------


def _end(name: str, job: Job, step: Step, now: datetime) -> list[str]:
    status, at = str(job.get("status")), job.get("completed_at")
    taken = time_taken(job.get("created_at"), at, now)
    first = f"{name} {ENDED[status]}" + (f" at {moment_text(at, now)}" if moment(at) else "")
    first += f", {taken} after it was accepted." if taken and moment(at) else "."
    if status == "SUCCEEDED":
        ref = ref_text(job.get("output_ref"))
        return [first, f"All its steps are done. Its output_ref is {ref}." if ref else "All its steps are done."]
    error = error_text(job.get("error"))
    where = f"step {text_of(step.get('stepId'))}" if step else "its step"
    if status == "CANCELLED":
        return [first, f"It was at {where}.", f"Error: {error}" if error else ""]
    tried = f", attempt {step['attempt_no']}" if step.get("attempt_no") else ""
    cause = CAUSES.get(text_of((job.get("error") or {}).get("code")), "")
    return [first, f"It ended at {where}{tried}: {error or 'no reason was given'}", cause, *_origin(job.get("error"))]


def _origin(error: Any) -> list[str]:
    """Where a failure was raised, and which instance of the service ran the attempt."""
    places, instance = raised_at(error), instance_of(error)
    return [
        f"It was raised at {places}." if places else "",
        f"The attempt was run by the instance {instance}." if instance else "",
    ]


def _after_end(job: Job, step: Step) -> list[tuple[str, str]]:
    job_id = text_of(job.get("jobId"))
    if job.get("status") == "SUCCEEDED":
        return []
    lanes = [("lucius lanes", "shows whether any worker takes directives")] if _code(job) == "ACK_TIMEOUT" else []
    begins = f" from step {text_of(step.get('stepId'))}" if step else ""
    redrive = (f"lucius redrive {job_id}", f"starts a new job{begins}, once the cause is fixed")
    return [*lanes, redrive, (f"lucius events {job_id}", "shows everything that happened")]


# --- Shared ----------------------------------------------------------------------------------------------------------


def _current(job: Job) -> tuple[int, Step]:
    """The job's current step and its position, counted from one."""
    steps: Sequence[Step] = job.get("steps") or ()
    for position, step in enumerate(steps, start=1):
        if step.get("stepId") == job.get("current_step_id"):
            return position, step
    return 0, {}


def _code(holder: Mapping[str, Any]) -> str:
    error = holder.get("error")
    return text_of(error.get("code")) if isinstance(error, Mapping) else ""


def _attempts(step: Step) -> list[Mapping[str, Any]]:
    return list(step.get("attempts") or ())


def _earlier(step: Step, now: datetime, before_no: int) -> list[str]:
    """How the last attempt before this one failed."""
    failed = [
        attempt
        for attempt in _attempts(step)
        if error_text(attempt.get("error")) and attempt.get("attempt_no", 0) < before_no
    ]
    if not failed:
        return []
    last = max(failed, key=lambda attempt: int(attempt["attempt_no"]))
    ago = distance(last.get("ended_at"), now)
    when = f", {ago}," if ago else ""
    return [f"Before that, attempt {last['attempt_no']} failed{when} with {error_text(last['error'])}"]


def _cancellation(events: Iterable[Mapping[str, Any]], now: datetime) -> list[str]:
    requests = [event for event in events if event.get("type") in ("CANCEL_ASKED", "CANCEL_FORCED")]
    if not requests:
        return []
    last = requests[-1]
    by, reason = text_of(last.get("by")), text_of(last.get("reason"))
    who = f" by {by}" if by else ""
    asked = "forced" if last.get("type") == "CANCEL_FORCED" else "requested"
    return [f"Cancellation was {asked}{who}, {distance(last.get('at'), now)}" + (f": {reason}" if reason else ".")]
