"""What may start now: the one place where phases and steps are told to wait, until when and why. Pure."""

from __future__ import annotations

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.execution_state import ExecutionState
from lucius.runbooks.core.states import POLLING


def sending_wait(runbook: Runbook, now: Instant) -> Wait | None:
    """Why steps of a batch of this version must not be sent now; those that `is_sent_anyway` are."""
    return runbook.calendar.wait(now)


def is_sent_anyway(one: ExecutionState) -> bool:
    """What has begun goes on: polls, and rollbacks, which undo what must not stay half done."""
    return one.status == POLLING or one.kind == "rollback"


def phase_wait(runbook: Runbook, now: Instant) -> Wait | None:
    """Why a phase that is due must not begin now."""
    return runbook.calendar.wait(now)
