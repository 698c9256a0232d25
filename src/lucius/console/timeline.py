"""The timeline of a job, as positions to draw: steps and attempts as bars, waits between them, marks.

Time in which an attempt runs is drawn to scale. Everything else (before a start, backoffs, pauses, the time until a
lease or a retry) is collapsed to a fixed width at most, so that an hour of waiting does not hide a second of work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from lucius.domain.attempt import Attempt, Verdict
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.domain.time import Instant

WIDTH = 960.0
LEFT = 150.0
ROW_HEIGHT = 30.0
IDLE_WIDTH_MAX = 46.0
BAR_WIDTH_MIN = 3.0
ATTEMPTS_MAX = 200
"""Attempts that are drawn, the newest."""


class Bar(Struct, frozen=True, kw_only=True):
    x: float
    width: float
    y: float
    kind: str
    """`queued`, `good`, `bad`, `busy`, `wait` or `quiet`."""
    text: str


class Mark(Struct, frozen=True, kw_only=True):
    x: float
    y: float
    kind: str
    """`sent`, `ack`, `due`, `deadline`."""
    text: str


class Timeline(Struct, frozen=True, kw_only=True):
    height: float
    rows: list[tuple[float, str, str]]
    """y, step, state."""
    bars: list[Bar]
    marks: list[Mark]
    breaks: list[float]
    """Where time is collapsed."""
    now_x: float | None
    is_cut_off: bool


def draw(job: Job, attempts: Mapping[str, Sequence[Attempt]], now: Instant) -> Timeline:
    end = job.completed_at or now
    drawn = [
        (index, attempt) for index, step in enumerate(job.steps) for attempt in attempts.get(step.spec.step_id, ())
    ]
    drawn.sort(key=lambda one: one[1].created_at)
    is_cut_off = len(drawn) > ATTEMPTS_MAX
    drawn = drawn[-ATTEMPTS_MAX:]
    due = _due(job)
    ahead = [] if job.is_terminal else sorted(at for at in {due, job.spec.deadline_at} if at is not None and at > end)
    last = max([end, *ahead])
    begin = drawn[0][1].created_at if is_cut_off else min(job.spec.created_at, last)
    scale = _Scale([(one.created_at, one.ended_at or end) for _, one in drawn], [begin, *ahead, last])
    bars: list[Bar] = []
    marks: list[Mark] = []
    for index, attempt in drawn:
        y = index * ROW_HEIGHT
        bars += _attempt_bars(attempt, scale, y, end)
        marks += _attempt_marks(attempt, scale, y)
    bars += _backoffs(drawn, scale, job, end)
    if not job.is_terminal:
        y = job.current_index * ROW_HEIGHT
        if due is not None:
            marks.append(Mark(x=scale.x(due), y=y, kind="due", text=_due_text(job)))
        marks.append(Mark(x=scale.x(job.spec.deadline_at), y=y, kind="deadline", text="the job's deadline"))
    rows = [
        (index * ROW_HEIGHT, step.spec.step_id, step.status.value.replace("_", " ").lower())
        for index, step in enumerate(job.steps)
    ]
    return Timeline(
        height=len(job.steps) * ROW_HEIGHT + 16, rows=rows, bars=bars, marks=marks, breaks=scale.breaks,
        now_x=None if job.is_terminal else scale.x(now), is_cut_off=is_cut_off,
    )  # fmt: skip


class _Scale:
    """From instants to positions."""

    def __init__(self, busy: list[tuple[Instant, Instant]], stops: list[Instant]) -> None:
        """`stops`: the first instant, the last one, and those between whose distances are collapsed one by one."""
        begin, end = stops[0], stops[-1]
        merged: list[tuple[Instant, Instant]] = []
        for start, stop in sorted([*busy, *((at, at) for at in stops[1:-1])]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
            else:
                merged.append((start, max(start, stop)))
        edges = [begin, *(edge for pair in merged for edge in pair), end]
        spans = [(first, max(first, second)) for first, second in pairwise(edges)]
        worked = sum(second - first for first, second in spans[1::2])
        idle_count = sum(second > first for first, second in spans[::2])
        idle_width = min(IDLE_WIDTH_MAX, (WIDTH - LEFT) / 2 / max(1, idle_count))
        whole = WIDTH - LEFT - 12
        to_work = whole - idle_width * idle_count
        self.breaks: list[float] = []
        self._points: list[tuple[Instant, float]] = [(begin, LEFT)]
        x = LEFT
        for place, (first, second) in enumerate(spans):
            if place % 2:
                x += to_work * (second - first) / worked if worked else 0.0
            elif second > first:
                width = idle_width if worked else whole / max(1, idle_count)
                self.breaks.append(x + width / 2)
                x += width
            self._points.append((second, x))

    def x(self, at: Instant) -> float:
        before = self._points[0]
        for point in self._points[1:]:
            if at <= point[0]:
                share = (at - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 1.0
                return round(before[1] + max(0.0, share) * (point[1] - before[1]), 1)
            before = point
        return round(before[1], 1)


def _attempt_bars(attempt: Attempt, scale: _Scale, y: float, end: Instant) -> list[Bar]:
    """Until a service has taken it, and from then on."""
    taken = attempt.acked_at or (end if attempt.ended_at is None else attempt.created_at)
    x, taken_x = scale.x(attempt.created_at), scale.x(taken)
    bars = []
    if taken > attempt.created_at:
        text = f"attempt {attempt.attempt_no} waits to be taken, {(taken - attempt.created_at) / 1000:.1f} s"
        bars.append(Bar(x=x, width=round(max(BAR_WIDTH_MIN, taken_x - x), 1), y=y, kind="queued", text=text))
    if attempt.acked_at is None and attempt.ended_at is None:
        return bars
    width = max(BAR_WIDTH_MIN, scale.x(attempt.ended_at or end) - taken_x)
    if attempt.verdict is Verdict.SUCCEEDED:
        kind = "good"
    elif attempt.ended_at is None:
        kind = "busy"
    else:
        kind = "bad" if attempt.error is not None or attempt.verdict is not None else "quiet"
    seconds = ((attempt.ended_at or end) - attempt.created_at) / 1000
    text = f"attempt {attempt.attempt_no}: {attempt.status.replace('_', ' ').lower()}, {seconds:.1f} s"
    if attempt.error is not None:
        text += f"; {attempt.error.code}"
    return [*bars, Bar(x=taken_x, width=round(width, 1), y=y, kind=kind, text=text)]


def _attempt_marks(attempt: Attempt, scale: _Scale, y: float) -> list[Mark]:
    marks = []
    if attempt.sent_at is not None:
        marks.append(Mark(x=scale.x(attempt.sent_at), y=y, kind="sent", text="dispatched"))
    if attempt.acked_at is not None:
        by = f" by {attempt.acked_by}" if attempt.acked_by else ""
        marks.append(Mark(x=scale.x(attempt.acked_at), y=y, kind="ack", text=f"acknowledged{by}"))
    return marks


def _backoffs(drawn: list[tuple[int, Attempt]], scale: _Scale, job: Job, end: Instant) -> list[Bar]:
    """Between an attempt that failed and the next one of the same step."""
    bars = []
    for (index, attempt), (following, another) in pairwise(drawn):
        if index == following and attempt.ended_at is not None and another.created_at > attempt.ended_at:
            bars.append(_wait(scale, index, attempt.ended_at, another.created_at, "waits before the next attempt"))
    step = job.current_step
    if step.status is StepStatus.FAILED_RETRY and step.due_at is not None and drawn:
        since = drawn[-1][1].ended_at or end
        if step.due_at > since:
            bars.append(_wait(scale, job.current_index, since, step.due_at, "waits before the next attempt"))
    return bars


def _wait(scale: _Scale, index: int, since: Instant, until: Instant, text: str) -> Bar:
    x = scale.x(since)
    return Bar(
        x=x, width=round(max(BAR_WIDTH_MIN, scale.x(until) - x), 1), y=index * ROW_HEIGHT, kind="wait", text=text
    )


def _due(job: Job) -> Instant | None:
    """When its current step is looked at next, or may begin."""
    if job.is_terminal:
        return None
    step = job.current_step
    return step.due_at or (job.spec.not_before if step.status is StepStatus.PENDING else None)


def _due_text(job: Job) -> str:
    step = job.current_step
    if step.due_at is None:
        return "the job may begin"
    return {
        StepStatus.PROCESSING: "the lease ends",
        StepStatus.FAILED_RETRY: "the next attempt",
    }.get(step.status, "looked at again")
