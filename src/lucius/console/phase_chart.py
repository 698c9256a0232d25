"""The phases of a batch on a time axis, as SVG. Places are per cent, so that texts keep their size in any window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup
from msgspec import Struct

from lucius.domain.time import Instant, from_datetime, iso
from lucius.runbooks.core.answers import BatchPhase, BatchWhole
from lucius.runbooks.core.states import PENDING, SKIPPED

ROW_PIXELS = 30
TOP_PIXELS = 22
EDGE = 0.02
"""Of the axis, left free at both ends."""
MINUTE = 60_000

BAR = Markup('<rect class="span {}" x="{:.2f}%" y="{}" width="{:.2f}%" height="14" rx="2"><title>{}</title></rect>')
DUE = Markup('<path class="due" d="M0 -6 L6 0 L0 6 L-6 0 Z"></path>')
PLACED = Markup('<svg x="{:.2f}%" y="{}" overflow="visible"><title>{}</title>{}</svg>')
LABEL = Markup('<text class="{}" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>')
_NOW = Markup(
    '<line class="now" x1="{0:.2f}%" x2="{0:.2f}%" y1="{1}" y2="100%"></line>'
    '<text class="now" x="{0:.2f}%" y="12" text-anchor="{2}">now</text>'
)
CHART = Markup('<svg class="phases" width="100%" height="{}" role="img" aria-label="{}">{}</svg>')


class Axis(Struct, frozen=True):
    start: Instant
    end: Instant

    def place(self, moment: Instant) -> float:
        """In per cent of the width."""
        share = (moment - self.start) / max(1, self.end - self.start)
        return 100 * (EDGE + share * (1 - 2 * EDGE))


def read(moment: str) -> Instant:
    return from_datetime(datetime.fromisoformat(moment))


def axis_of(batch: BatchWhole, now: Instant) -> Axis:
    """From the first thing that happens to the last; `now` is on it while the batch is open."""
    moments = [read(batch["start"])]
    for phase in batch["phase_list"]:
        found = (phase["due_at"], phase["dispatched_at"], phase["completed_at"])
        moments += [read(one) for one in found if one is not None and phase["status"] != SKIPPED]
    if batch["completed_at"] is None:
        moments.append(now)
    first, last = min(moments), max(moments)
    return Axis(first, max(last, first + MINUTE))


def phase_chart(batch: BatchWhole, now: Instant) -> Markup:
    axis = axis_of(batch, now)
    shown = [phase for phase in batch["phase_list"] if phase["status"] != SKIPPED]
    parts = []
    if axis.start <= now <= axis.end:  # Below the rows: their names stay legible where it crosses them.
        parts.append(_NOW.format(axis.place(now), TOP_PIXELS - 6, anchor(axis.place(now))))
    parts += [_row(axis, place, phase, now) for place, phase in enumerate(shown)]
    height = TOP_PIXELS + ROW_PIXELS * max(1, len(shown))
    return CHART.format(height, _in_words(shown), Markup("").join(parts))


def _row(axis: Axis, place: int, phase: BatchPhase, now: Instant) -> Markup:
    top = TOP_PIXELS + ROW_PIXELS * place
    due = axis.place(read(phase["due_at"]))
    name = f"{phase['phase']}: {phase['status']}, due {phase['due_at'][:16].replace('T', ' ')} UTC"
    parts = []
    left = due
    if phase["status"] != PENDING and phase["dispatched_at"] is not None:
        began = read(phase["dispatched_at"])
        ended = now if phase["completed_at"] is None else read(phase["completed_at"])
        left = axis.place(began)
        parts.append(BAR.format(phase["status"], left, top + 14, max(0.4, axis.place(ended) - left), name))
    parts.append(PLACED.format(due, top + 21, name, DUE))
    at = min(left, due)
    parts.append(LABEL.format("phase", at, top + 10, anchor(at), f"{phase['phase']} ({phase['offset']})"))
    return Markup("").join(parts)


def anchor(place: float) -> str:
    return "start" if place < 15 else "end" if place > 85 else "middle"


def _in_words(shown: Sequence[BatchPhase]) -> str:
    said = [f"{phase['phase']} {phase['status']}, due {phase['due_at'][:16].replace('T', ' ')} UTC" for phase in shown]
    return f"Phases on a time axis: {'; '.join(said) or 'none'}"


def ends(axis: Axis) -> tuple[str, str]:
    """The first and the last moment of the axis."""
    return iso(axis.start), iso(axis.end)
