"""The real server's rules: its answers to pulls and callbacks."""

from __future__ import annotations

from typing import Any

from lucius.contract.exchange import Attempt, Call, Reply, ScriptedAnswer, problem

PULL_MAX = 256
WAIT_SECONDS_MAX = 60.0


def decide(call: Call, attempt: Attempt) -> tuple[int, str]:
    """Status and code for a genuine callback, in the order of docs/reference/directive-and-callbacks.md; applies it."""
    if attempt.superseded:
        return 409, "STALE_ATTEMPT"
    has_ended = attempt.closed or attempt.result is not None
    if call.kind == "RESULT":
        if attempt.result is not None and attempt.result["status"] == call.body["status"]:
            return 200, "DUPLICATE"
        if has_ended:
            return 200, "LATE"
        attempt.result = call.body
        return 200, "APPLIED"
    if call.kind == "ACK" and attempt.acked:
        return 200, "DUPLICATE"
    if has_ended:
        return 409, "JOB_TERMINAL"
    attempt.acked = True
    return 200, "APPLIED"


def mark(call: Call, reply: Reply) -> None:
    call.status = reply.status
    call.code = str(reply.content.get("outcome") or reply.content.get("code") or "")
    call.was_dropped = reply.drop


def refusal(status: int, code: str, detail: str) -> Reply:
    return Reply(status, problem(status, code, detail))


def scripted_reply(answer: ScriptedAnswer, detail: str, calls: list[Call] | None = None) -> Reply:
    if answer.status == 200:
        reply = Reply(200, {"outcome": answer.code or "APPLIED", "cancel_requested": answer.cancel_requested})
    else:
        reply = refusal(answer.status, answer.code, detail)
    reply.retry_after_seconds, reply.drop = answer.retry_after_seconds, answer.drop
    reply.delay_seconds, reply.trickle_seconds = answer.delay_seconds, answer.trickle_seconds
    reply.calls = calls or []
    for call in reply.calls:
        mark(call, reply)
    return reply


def named(attempt: Attempt) -> str:
    return f"attempt {attempt.directive['attempt_no']} of job {attempt.job_id[:8]}"


def pull_fault(body: Any, service: str) -> str:
    """The real server's objection to the body of a pull."""
    if not isinstance(body, dict):
        return "the body of a pull must be an object: service, max, wait_seconds"
    unknown = body.keys() - {"service", "max", "wait_seconds"}
    if unknown:
        return f"a pull has the fields service, max and wait_seconds, not {', '.join(sorted(unknown))}"
    if body.get("service") != service:
        return f"no protocol names the service {body.get('service')!r}; known are {service}"
    count, wait = body.get("max", 1), body.get("wait_seconds", 0)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= PULL_MAX:
        return f"max must be between 0 and {PULL_MAX}"
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 <= wait <= WAIT_SECONDS_MAX:
        return f"wait_seconds must be between 0 and {WAIT_SECONDS_MAX:g}"
    return ""
