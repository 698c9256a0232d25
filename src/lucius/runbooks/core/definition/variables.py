"""The variables a step may use: specials, output variables of earlier steps, columns.

A step of a phase can use the outputs of earlier steps of the same member, in the order of the phases' due times.
Rollback and removal steps may run after any step, so they can use the outputs of every phase step. Init has no member,
so no columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from lucius.domain.payload import pointer_token
from lucius.runbooks.core.definition.checks import Kind, StepList, mapping, step_lists, text
from lucius.runbooks.core.definition.durations import parse_offset
from lucius.runbooks.core.definition.faults import Finding, Found
from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.definition.names import column_fault
from lucius.runbooks.core.definition.places import clipped
from lucius.runbooks.core.definition.templates import SPECIALS, TemplateFault, Variable, parse, texts_in

_ADVISED_MAX = 100
"""Names of a kind listed in a fault as suggestions."""


def known_outputs(runbook: Runbook, kind: Kind, list_name: str | None, step_index: int) -> frozenset[str]:
    """The output variables a step may use; `list_name` is the phase of a `step`, or the name of a rollback."""
    if kind == "init":
        return _outputs(runbook.init[:step_index])
    if kind == "step":
        before = takewhile(lambda phase: phase.name != list_name, runbook.phases)
        earlier = [step for phase in before for step in phase.steps]
        return _outputs([*earlier, *runbook.phase(list_name or "").steps[:step_index]])
    steps = runbook.on_member_removed if kind == "removal" else runbook.rollbacks[list_name or ""]
    return _outputs([*(step for phase in runbook.phases for step in phase.steps), *steps[:step_index]])


def _outputs(steps: Sequence[Step]) -> frozenset[str]:
    return frozenset(variable for step in steps for variable in step.output_params)


def template_faults(document: dict[str, Any], columns: Sequence[str] | None) -> Found:
    """Without `columns`, any other name is assumed to be a column."""
    lists = step_lists(document)
    phases = [steps for steps in lists if steps.kind == "step"]
    of_phases = dict.fromkeys(name for steps in phases for _, step in steps.steps for name in _variables(step))
    by_moment = _by_moment(phases)
    faults: Found = []
    earlier = {**of_phases} if by_moment is None else {}
    for steps in phases if by_moment is None else by_moment:
        faults += _list_faults(steps, earlier, columns)
    for steps in lists:
        if steps.kind == "init":
            faults += _list_faults(steps, {}, ())
        elif steps.kind != "step":
            faults += _list_faults(steps, {**of_phases}, columns)
    return faults + _init_rollback_faults(lists)


def _init_rollback_faults(lists: list[StepList]) -> Found:
    """A rollback named by init runs without a member: its variables must exist without one."""
    names = {text(step, "on_failure") for steps in lists if steps.kind == "init" for _, step in steps.steps}
    named = {f"/rollbacks/{pointer_token(name)}" for name in names if name}
    of_init = dict.fromkeys(
        name for steps in lists if steps.kind == "init" for _, step in steps.steps for name in _variables(step)
    )
    faults: Found = []
    for steps in lists:
        if steps.kind == "rollback" and steps.pointer in named:
            found = _list_faults(steps, {**of_init}, ())
            faults += [
                Finding(one.pointer, one.message.replace(_OF_A_MEMBER, _OF_INIT_ROLLBACK), one.unknown, one.known)
                for one in found
                if one.unknown is not None
            ]
    return faults


def _by_moment(phases: list[StepList]) -> list[StepList] | None:
    """In the order of their due times; None if an invalid offset leaves the order open."""
    try:
        return sorted(phases, key=lambda steps: -parse_offset(steps.offset or ""))
    except ValueError:
        return None


def _variables(step: dict[str, Any]) -> list[str]:
    return [*mapping(step.get("output_params"))]


def _list_faults(steps: StepList, earlier: dict[str, None], columns: Sequence[str] | None) -> Found:
    """Adds the list's output variables to `earlier`, step by step."""
    faults: Found = []
    for pointer, step in steps.steps:
        faults += _key_faults(step.get("params"), f"{pointer}/params")
        for place, template in texts_in(text(step, "function") or "", mapping(step.get("params"))):
            try:
                names = _unknown(template, earlier, columns)
            except TemplateFault as fault:
                faults.append(Finding(pointer + place, str(fault)))
                continue
            known = (
                [*sorted(SPECIALS), *islice(earlier, _ADVISED_MAX), *(columns or ())[:_ADVISED_MAX]] if names else []
            )
            for name in names:
                detail = f"{{{{{clipped(name)}}}}} is not known here: {_REASONS[steps.kind]}"
                faults.append(Finding(pointer + place, detail, name, known))
        earlier.update(dict.fromkeys(_variables(step)))
    return faults


def _unknown(template: str, earlier: Mapping[str, None], columns: Collection[str] | None) -> list[str]:
    """If the columns are unknown, any valid column name may be one."""
    names = dict.fromkeys(part.name for part in parse(template) if isinstance(part, Variable))
    unknown = [name for name in names if name not in SPECIALS and name not in earlier]
    return [name for name in unknown if (column_fault(name) is not None if columns is None else name not in columns)]


_OF_A_MEMBER = "not a special, an output variable of an earlier step, or a column"
_OF_INIT_ROLLBACK = "an init step names this rollback, and init has no member; give init its own rollback"
_REASONS: dict[Kind, str] = {
    "init": "init runs once for a batch and has only specials and outputs of earlier init steps",
    "step": _OF_A_MEMBER,
    "removal": _OF_A_MEMBER,
    "rollback": _OF_A_MEMBER,
}


def _key_faults(value: Any, pointer: str) -> Found:
    """Keys are sent unchanged, so braces in a key are a mistake that would go unnoticed."""
    faults: Found = []
    if isinstance(value, dict):
        for key, member in value.items():
            place = f"{pointer}/{pointer_token(key)}"
            if "{{" in key or "}}" in key:
                faults.append(Finding(place, "keys cannot be templates; put the variable in the value"))
            faults += _key_faults(member, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            faults += _key_faults(item, f"{pointer}/{index}")
    return faults
