"""What may start now: the one place where phases and steps are told to wait, until when and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import Instant
from lucius.runbooks.core.approvals import ApprovalState, Decision, approval_state
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.execution_state import ExecutionState
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.states import PENDING, POLLING


def sending_wait(runbook: Runbook, now: Instant) -> Wait | None:
    """Why steps of a batch of this version must not be sent now; those that `is_sent_anyway` are."""
    return runbook.calendar.wait(now)


def is_sent_anyway(one: ExecutionState) -> bool:
    """What has begun goes on: polls, and rollbacks, which undo what must not stay half done."""
    return one.status == POLLING or one.kind == "rollback"


def phase_wait(
    runbook: Runbook, batch: Batch, phase: Phase, every: Sequence[Phase], decisions: Sequence[Decision], now: Instant
) -> Wait | None:
    """Why a pending phase of the batch's version must not begin now, if it is due. `every` phase and all `decisions` of
    its batch. A phase whose approval has expired does not wait for it."""
    for earlier in every:
        if earlier.id >= phase.id:
            break
        blocking = _approval(runbook, batch, earlier, decisions)
        is_open = earlier.status == PENDING and earlier.version == phase.version
        if is_open and blocking is not None and blocking.missing:
            # Whoever decides about the earlier phase has the scheduler look at this one again.
            until_at = max(blocking.deadline_at, runbook.calendar.next_open(now))
            return Wait(until_at, f"phase {earlier.name} before it needs approval")
    approval = _approval(runbook, batch, phase, decisions)
    if approval is not None and approval.outcome(now) == "wait":
        return Wait(approval.deadline_at, f"it needs approval ({approval.progress})")
    return runbook.calendar.wait(now)


def _approval(runbook: Runbook, batch: Batch, phase: Phase, decisions: Sequence[Decision]) -> ApprovalState | None:
    wanted = next((one.approval for one in runbook.phases if one.name == phase.name), None)
    return approval_state(wanted, batch, phase, decisions)
