"""Draw the state machines into the reference, from the tables that the code itself goes by.

`make diagrams` runs this. A test draws them again and compares, so the page cannot fall behind the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from lucius.domain.bulk_operation import BULK_TERMINAL, BULK_TRANSITIONS, BulkStatus
from lucius.domain.job import JOB_TERMINAL, JOB_TRANSITIONS, JobStatus
from lucius.domain.step import STEP_TERMINAL, STEP_TRANSITIONS, StepStatus
from lucius.runbooks.core.states import ACTIVE, BATCH, BATCH_RETRIED, DETECTED, MEMBER, PENDING, PHASE, RETRIED, STEP

REFERENCE = Path(__file__).parent / "reference"
PAGE = REFERENCE / "states.md"
RUNBOOK_PAGE = REFERENCE / "runbook-tables.md"

Transitions = Mapping[tuple[StrEnum, StrEnum], StrEnum]
Ways = Mapping[str, frozenset[str]]
"""A machine of runbooks: from each status, where it may go."""


def diagram(transitions: Transitions, first: StrEnum, terminal: frozenset[StrEnum]) -> str:
    """A Mermaid state diagram: one arrow for each pair of states, labelled with the moves that lead there."""
    moves: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (state, move), target in transitions.items():
        moves.setdefault((state, target), []).append(move.value)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    lines += [f"    {state.value} --> {target.value}: {', '.join(named)}" for (state, target), named in moves.items()]
    lines += [f"    {state.value} --> [*]" for state in type(first) if state in terminal]
    return "\n".join([*lines, "```"])


def table(transitions: Transitions, states: type[StrEnum]) -> str:
    """The same as a table: a row for each state, a column for each move; empty where the move does not exist."""
    moves = list(dict.fromkeys(move for _, move in transitions))
    lines = ["| state | " + " | ".join(f"`{move.value}`" for move in moves) + " |", "| --- " * (len(moves) + 1) + "|"]
    for state in states:
        targets = [transitions.get((state, move)) for move in moves]
        cells = [f"`{target.value}`" if target is not None else "" for target in targets]
        lines.append(f"| `{state.value}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ways_diagram(ways: Ways, first: str, retried: Ways | None = None) -> str:
    """A Mermaid state diagram; what only an operator's retry does is labelled so."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {state} --> {target}" for state, targets in ways.items() for target in sorted(targets)]
    again = [(state, target) for state, targets in (retried or {}).items() for target in sorted(targets)]
    lines += [f"    {state} --> {target}: retry" for state, target in again]
    lines += [f"    {state} --> [*]" for state, targets in ways.items() if not targets]
    return "\n".join([*lines, "```"])


def ways_table(ways: Ways, retried: Ways | None = None) -> str:
    lines = ["| from | to | by an operator's retry alone |", "| --- | --- | --- |"]
    for state, targets in ways.items():
        again = (retried or {}).get(state, frozenset())
        lines.append(f"| `{state}` | {_named(targets)} | {_named(again)} |")
    return "\n".join(lines)


def _named(states: frozenset[str]) -> str:
    return ", ".join(f"`{state}`" for state in sorted(states))


def runbook_parts() -> dict[str, str]:
    machines: dict[str, tuple[Ways, str, Ways | None]] = {
        "runbook-step": (STEP, PENDING, RETRIED),
        "runbook-batch": (BATCH, DETECTED, BATCH_RETRIED),
        "runbook-phase": (PHASE, PENDING, None),
        "runbook-member": (MEMBER, ACTIVE, None),
    }
    return {
        name: ways_diagram(ways, first, retried) + "\n\n" + ways_table(ways, retried)
        for name, (ways, first, retried) in machines.items()
    }


def job_parts() -> dict[str, str]:
    return {
        "job": diagram(JOB_TRANSITIONS, JobStatus.QUEUED, JOB_TERMINAL) + "\n\n" + table(JOB_TRANSITIONS, JobStatus),
        "step": diagram(STEP_TRANSITIONS, StepStatus.PENDING, STEP_TERMINAL)
        + "\n\n"
        + table(STEP_TRANSITIONS, StepStatus),
        "bulk-operation": diagram(BULK_TRANSITIONS, BulkStatus.SELECTING, BULK_TERMINAL)
        + "\n\n"
        + table(BULK_TRANSITIONS, BulkStatus),
    }


def drawn(page: str, parts: Mapping[str, str] | None = None) -> str:
    """The page with everything between its markers drawn anew; by default, with the machines of jobs and steps."""
    for name, text in (job_parts() if parts is None else parts).items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"the page must hold {begin} and {end}, once each")
        page = pattern.sub(f"{begin}\n{text}\n{end}", page)
    return page


def main() -> None:
    for path, parts in ((PAGE, job_parts()), (RUNBOOK_PAGE, runbook_parts())):
        path.write_text(drawn(path.read_text("utf-8"), parts), "utf-8")


if __name__ == "__main__":
    main()
