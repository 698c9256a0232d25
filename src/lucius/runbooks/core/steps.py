"""Finds the step definition of an execution."""

from __future__ import annotations

from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.execution import Execution


def step_of(runbook: Runbook, execution: Execution) -> Step:
    """The definition that an execution was created from."""
    if execution.kind == "step":
        return runbook.phase(execution.list_name).steps[execution.step_index]
    if execution.kind == "init":
        return runbook.init[execution.step_index]
    if execution.kind == "removal":
        return runbook.on_member_removed[execution.step_index]
    return runbook.rollbacks[execution.list_name][execution.step_index]
