"""When a phase that has not begun begins, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import Instant, iso
from lucius.runbooks.core.approvals import Decision
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.start_rules import phase_wait


def phase_begins(
    phase: Phase, runbook: Runbook, batch: Batch, every: Sequence[Phase], decisions: Sequence[Decision], now: Instant
) -> str:
    due = f"phase {phase.name} is due at {iso(phase.due_at)}"
    wait = phase_wait(runbook, batch, phase, every, decisions, max(now, phase.due_at))
    return due if wait is None else f"{due} and waits until {iso(wait.until_at)}: {wait.because}"
