"""The exchange of a case in readable form: each call, its time, and its answer."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.contract.exchange import Call

LINES_HEAD = 14
LINES_TAIL = 4
SHOWN = ("status", "failure_class", "progress", "retry_after", "error")


def excerpt(calls: Sequence[Call]) -> list[str]:
    """The first and last calls, without empty pulls unless there is nothing else."""
    shown = [call for call in calls if call.kind != "PULL"] or list(calls)
    if not shown:
        return []
    start = shown[0].at
    lines = [_line(call, start) for call in shown]
    if len(lines) <= LINES_HEAD + LINES_TAIL:
        return lines
    left_out = len(lines) - LINES_HEAD - LINES_TAIL
    return [*lines[:LINES_HEAD], f"… {left_out} more …", *lines[-LINES_TAIL:]]


def _line(call: Call, start: float) -> str:
    attempt_no = call.attempt.directive["attempt_no"] if call.attempt else "?"
    whose = f"{call.job_id[:8]}/{attempt_no}" if call.kind != "PULL" else ""
    fields = ", ".join(f"{name} {_short(call.body[name])}" for name in SHOWN if call.body.get(name) is not None)
    parts = [
        f"{call.at - start:7.3f} s  {call.kind:<9} {whose:<10}",
        f"{fields:<18}" if fields else " " * 18,
        _answer(call),
    ]
    parts += [f"({call.faults[0]})"] if call.faults else []
    return "  ".join(parts).rstrip()


def _answer(call: Call) -> str:
    if call.kind == "DIRECTIVE":
        return call.code
    answered = f"{call.status} {call.code}".strip()
    if call.answered_at is None:
        return answered if call.status else "not answered yet"
    took = call.answered_at - call.at
    after = f" after {took:.1f} s" if took >= 0.5 else ""
    return f"{answered}, but the answer was lost{after}" if call.was_dropped else f"{answered}{after}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
