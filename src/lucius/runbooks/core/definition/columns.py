"""The columns that a runbook's templates need: every variable that only a column can provide, and where it stands."""

from __future__ import annotations

from collections.abc import Collection

from lucius.runbooks.core.definition.checks import Kind
from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.definition.templates import SPECIALS, variables_in
from lucius.runbooks.core.definition.variables import known_outputs

PLACES_SHOWN = 3


def columns_needed(runbook: Runbook) -> dict[str, list[str]]:
    """By column, in text order: the steps whose templates use it.

    Init has no member, so neither it nor a rollback that it names needs any.
    """
    needed: dict[str, list[str]] = {}
    lists: list[tuple[Kind, str, str, tuple[Step, ...]]] = [
        ("step", phase.name, f"phase {phase.name}", phase.steps) for phase in runbook.phases
    ]
    lists.append(("removal", "on_member_removed", "on_member_removed", runbook.on_member_removed))
    of_init = {step.on_failure for step in runbook.init}
    lists += [
        ("rollback", name, f"rollback {name}", steps)
        for name, steps in runbook.rollbacks.items()
        if name not in of_init
    ]
    for kind, name, where, steps in lists:
        for index, step in enumerate(steps):
            outputs = known_outputs(runbook, kind, name, index)
            for variable in dict.fromkeys(variable for _, variable in variables_in(step)):
                if variable not in SPECIALS and variable not in outputs:
                    needed.setdefault(variable, []).append(f"step {step.name} of {where}")
    return needed


def missing_columns(runbook: Runbook, columns: Collection[str], what: str) -> list[str]:
    """A sentence for each needed column that `what`, a CSV or a source, does not have."""
    return [
        f"{what} has no column {column}, which {{{{{column}}}}} needs in {_listed(places)}: add the column;"
        " a cell may be empty"
        for column, places in columns_needed(runbook).items()
        if column not in columns
    ]


def _listed(places: list[str]) -> str:
    shown = places[:PLACES_SHOWN]
    if len(places) > PLACES_SHOWN:
        return f"{', '.join(shown)} and {len(places) - PLACES_SHOWN} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
