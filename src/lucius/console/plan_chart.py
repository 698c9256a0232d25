"""The plan of a runbook as a timeline: when each phase is due before the batch's start, and how long it may take."""

from __future__ import annotations

from markupsafe import Markup

from lucius.console.phase_chart import BAR, CHART, DUE, LABEL, PLACED, ROW_PIXELS, TOP_PIXELS, Axis, anchor
from lucius.console.templating import duration
from lucius.runbooks.rehearsal.plan import BatchPlan, PhasePlan

HOUR = 3_600_000
_START = Markup(
    '<line class="now" x1="{0:.2f}%" x2="{0:.2f}%" y1="{1}" y2="100%"></line>'
    '<text class="now" x="{0:.2f}%" y="12" text-anchor="{2}">start of the batch</text>'
)


def plan_chart(plan: BatchPlan) -> Markup:
    """Bars are from when a phase is due to when it has ended at the latest, if everything times out."""
    ends = [phase.due_at + phase.worst_seconds * 1000 for phase in plan.phases]
    first = min([plan.start, *(phase.due_at for phase in plan.phases)])
    # A phase that may take for months must not make the others too small to see.
    last = max([plan.start, *(phase.due_at for phase in plan.phases)])
    span = max(last - first, HOUR)
    axis = Axis(first, max(min(max([last, *ends]), last + span), first + HOUR))
    at = axis.place(plan.start)
    rows = [_START.format(at, TOP_PIXELS - 6, anchor(at))]  # Below the rows: their names stay legible.
    rows += [_row(axis, place, phase) for place, phase in enumerate(plan.phases)]
    said = "; ".join(f"{phase.phase} at {phase.offset}" for phase in plan.phases)
    height = TOP_PIXELS + ROW_PIXELS * len(plan.phases)
    return CHART.format(height, f"Phases on a time axis: {said}", Markup("").join(rows))


def _row(axis: Axis, place: int, phase: PhasePlan) -> Markup:
    top = TOP_PIXELS + ROW_PIXELS * place
    due = axis.place(phase.due_at)
    end = min(100.0, axis.place(phase.due_at + phase.worst_seconds * 1000))
    name = f"{phase.phase}: due {phase.offset}, at worst {duration(phase.worst_seconds)}"
    return Markup("").join(
        (
            BAR.format("failed" if phase.is_too_short else "plan", due, top + 14, max(0.4, end - due), name),
            PLACED.format(due, top + 21, name, DUE),
            LABEL.format("phase", due, top + 10, anchor(due), f"{phase.phase} ({phase.offset})"),
        )
    )
