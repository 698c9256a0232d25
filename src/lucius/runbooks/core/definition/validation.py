"""Validates a runbook's text; the result is plain data for the API and the command line."""

from __future__ import annotations

from lucius.runbooks.core.answers import RunbookFault, RunbookValidation, ValidatedPhase
from lucius.runbooks.core.definition.durations import show_offset
from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook


def validated(content: bytes) -> RunbookValidation:
    try:
        runbook = read_runbook(content)
    except RunbookInvalid as error:
        faults: list[RunbookFault] = [
            {"line": one.line, "pointer": one.pointer, "message": one.message} for one in error.faults
        ]
        return {"valid": False, "faults": faults, "phases": []}
    phases: list[ValidatedPhase] = [
        {"name": phase.name, "offset": show_offset(phase.offset_minutes), "steps": [step.name for step in phase.steps]}
        for phase in runbook.phases
    ]
    return {"valid": True, "name": runbook.name, "faults": [], "phases": phases}
