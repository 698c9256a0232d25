"""Approvals of a phase: what is missing, until when, and what then. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from lucius.domain.time import Instant, after
from lucius.runbooks.core.definition.model import Approval
from lucius.runbooks.core.due_times import due_at
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import Batch, Phase

APPROVED = "approved"
REFUSED = "refused"


class Decision(Struct, frozen=True):
    """What one caller decided about one execution of a phase; each has one."""

    phase_id: int
    actor: str
    decision: str
    reason: str | None
    decided_at: Instant


class ApprovalState(Struct, frozen=True):
    wanted: Approval
    deadline_at: Instant
    decisions: Sequence[Decision]

    @property
    def approvers(self) -> list[str]:
        return [one.actor for one in self.decisions if one.decision == APPROVED]

    @property
    def missing(self) -> int:
        return max(self.wanted.count - len(self.approvers), 0)

    @property
    def progress(self) -> str:
        """Such as `1 of 2 approvals, by key:anna`."""
        noun = "approval" if self.wanted.count == 1 else "approvals"
        by = f", by {', '.join(self.approvers)}" if self.approvers else ""
        return f"{len(self.approvers)} of {self.wanted.count} {noun}{by}"

    def outcome(self, now: Instant) -> Literal["wait", "begin", "fail", "skip", "run"]:
        """What a phase that is due does now."""
        if not self.missing:
            return "begin"
        return "wait" if now < self.deadline_at else self.wanted.otherwise

    @property
    def expired(self) -> str:
        return f"not approved by {utc(self.deadline_at)}: {self.progress}"


def approval_state(
    wanted: Approval | None, batch: Batch, phase: Phase, decisions: Sequence[Decision]
) -> ApprovalState | None:
    """None if the phase needs no approval."""
    if wanted is None:
        return None
    deadline = after(phase.due_at, wanted.after_due_seconds)
    if wanted.until_minutes is not None:
        deadline = due_at(batch.starts_at, wanted.until_minutes)
    return ApprovalState(wanted, deadline, [one for one in decisions if one.phase_id == phase.id])
