"""Whether a text is a runbook, said in plain data: what the API answers and the command line shows."""

from __future__ import annotations

from typing import Any

from lucius.runbooks.definition.durations import show_offset
from lucius.runbooks.definition.reading import RunbookInvalid, read_runbook


def validated(content: bytes) -> dict[str, Any]:
    try:
        runbook = read_runbook(content)
    except RunbookInvalid as error:
        faults = [{"line": one.line, "pointer": one.pointer, "message": one.message} for one in error.faults]
        return {"valid": False, "faults": faults, "phases": []}
    phases = [
        {"name": phase.name, "offset": show_offset(phase.offset_minutes), "steps": [step.name for step in phase.steps]}
        for phase in runbook.phases
    ]
    return {"valid": True, "name": runbook.name, "faults": [], "phases": phases}
