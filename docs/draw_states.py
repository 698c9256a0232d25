"""Draw the state machines into `docs/reference/states.md`, from the tables that `decide` itself goes by.

`make diagrams` runs this. A test draws them again and compares, so the page cannot fall behind the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from lucius.domain.job import JOB_TERMINAL, JOB_TRANSITIONS, JobStatus
from lucius.domain.step import STEP_TERMINAL, STEP_TRANSITIONS, StepStatus

PAGE = Path(__file__).parent / "reference" / "states.md"

Transitions = Mapping[tuple[StrEnum, StrEnum], StrEnum]


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


def drawn(page: str) -> str:
    """The page with everything between its markers drawn anew."""
    parts = {
        "job": diagram(JOB_TRANSITIONS, JobStatus.QUEUED, JOB_TERMINAL) + "\n\n" + table(JOB_TRANSITIONS, JobStatus),
        "step": diagram(STEP_TRANSITIONS, StepStatus.PENDING, STEP_TERMINAL)
        + "\n\n"
        + table(STEP_TRANSITIONS, StepStatus),
    }
    for name, text in parts.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"{PAGE.name} must hold {begin} and {end}, once each")
        page = pattern.sub(f"{begin}\n{text}\n{end}", page)
    return page


def main() -> None:
    PAGE.write_text(drawn(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
