"""Parses a runbook's text: into the model, or into all its faults, each with its line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lucius.domain.payload import pointer_token
from lucius.runbooks.core.definition.calendar import Freeze
from lucius.runbooks.core.definition.calendar_reading import calendar_faults, read_calendar
from lucius.runbooks.core.definition.checks import sense_faults
from lucius.runbooks.core.definition.durations import parse_duration, parse_offset, show_duration
from lucius.runbooks.core.definition.faults import Fault, Finding, Found, RunbookInvalid
from lucius.runbooks.core.definition.model import (
    APPROVAL_SECONDS,
    STEP_TIMEOUT_SECONDS,
    Approval,
    DataSource,
    FailureLimit,
    MultiValued,
    Phase,
    Poll,
    Retry,
    Runbook,
    Step,
)
from lucius.runbooks.core.definition.places import advice, in_words
from lucius.runbooks.core.definition.query import statement
from lucius.runbooks.core.definition.recipients import read_notifications
from lucius.runbooks.core.definition.schema import shape_faults
from lucius.runbooks.core.definition.variables import template_faults
from lucius.yaml_text import YamlFault, YamlText, read_yaml

__all__ = ["Fault", "RunbookInvalid", "read_runbook"]

FAULTS_MAX = 200

_LINE_BREAK = re.compile(rb"\r\n|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9]")
_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def read_runbook(content: bytes, columns: Sequence[str] | None = None, of_files: Sequence[Freeze] = ()) -> Runbook:
    """Raises `RunbookInvalid` with all faults. `columns` are the data source's columns, if known; `of_files` are the
    freezes in the files that it names."""
    try:
        document = read_yaml(content)
    except YamlFault as fault:
        # The parser counts one line too many if the text has no final line break.
        line = min(fault.line, len(_LINE_BREAK.findall(content)) + 1)
        raise RunbookInvalid([Fault(line, "", fault.detail)]) from None
    if not isinstance(document.value, dict):
        raise RunbookInvalid([Fault(document.line_of(""), "", "a runbook must be a mapping of keys and values")])
    faults = _faults(document, columns)
    if faults:
        raise RunbookInvalid(faults)
    return _runbook(document.value, of_files)


def fault_at(content: bytes, pointer: str, message: str) -> Fault:
    """A fault that only whoever has read something else can find, such as a file that the runbook names."""
    return _fault(read_yaml(content), Finding(pointer, message))


def _faults(document: YamlText, columns: Sequence[str] | None) -> list[Fault]:
    found: Found = []
    value = _plain(document.value, "", found)
    found = _first_per_place(found, shape_faults(value))
    sense = [*sense_faults(value, columns), *calendar_faults(value), *template_faults(value, columns)]
    found = _first_per_place(found, sense)
    found.sort(key=lambda finding: (document.line_of(finding.pointer), _order(finding.pointer)))
    if len(found) > FAULTS_MAX:
        more = f"{len(found) - FAULTS_MAX} more faults below; fix those above first"
        found[FAULTS_MAX:] = [Finding(found[FAULTS_MAX].pointer, more)]
    return [_fault(document, finding) for finding in found]


def _order(pointer: str) -> list[tuple[int, str]]:
    """Sort key for places on one line: list items by number (shorter tokens before longer ones)."""
    return [(len(token) if token.isdigit() else 0, token) for token in pointer.split("/")]


def _first_per_place(found: Found, more: Found) -> Found:
    """Drops further faults of a place that already has one: they would be noise."""
    places = {finding.pointer for finding in found}
    return found + [finding for finding in more if finding.pointer not in places]


def _fault(document: YamlText, finding: Finding) -> Fault:
    message = f"{in_words(document.value, finding.pointer) or 'the runbook'}: {finding.message}"
    if finding.unknown is not None:
        message = f"{message}; {advice(finding.unknown, finding.known)}"
    return Fault(document.line_of(finding.pointer), finding.pointer, message)


def _plain(value: Any, pointer: str, found: Found) -> Any:
    """The value without parts that JSON or a database cannot store; each part removed is a fault."""
    if isinstance(value, dict):
        for key in value:
            if _UNFIT.search(key):
                found.append(Finding(pointer, f"the key {key!r} contains a control character; remove it"))
        members = {key: member for key, member in value.items() if not _UNFIT.search(key)}
        return {key: _plain(member, f"{pointer}/{pointer_token(key)}", found) for key, member in members.items()}
    if isinstance(value, list):
        return [_plain(item, f"{pointer}/{index}", found) for index, item in enumerate(value)]
    if isinstance(value, str) and _UNFIT.search(value):
        found.append(Finding(pointer, "contains a control character; only line breaks and tabs are allowed"))
        return _UNFIT.sub("", value)
    if isinstance(value, float) and not math.isfinite(value):
        found.append(Finding(pointer, "is not a finite number; use one, or put it in quotes"))
        return 0
    return value


def _runbook(document: dict[str, Any], of_files: Sequence[Freeze]) -> Runbook:
    source = document["data_source"]
    retry = _retry(document.get("retry"), Retry())
    rollbacks = document.get("rollbacks", {})
    phases = [
        Phase(
            name=phase["name"],
            offset_minutes=parse_offset(phase["offset"]),
            approval=_approval(phase["approval"]) if "approval" in phase else None,
            steps=_steps(phase["steps"], retry),
        )
        for phase in document["phases"]
    ]
    return Runbook(
        name=document["name"],
        description=document.get("description", ""),
        source=None if source["type"] == "manual" else _source(source),
        primary_key=source["primary_key"],
        progression=document.get("progression", "barrier"),
        max_parallel=int(document["max_parallel"]) if "max_parallel" in document else None,
        max_failures=_failure_limit(document.get("max_failures")),
        calendar=read_calendar(document, of_files),
        init=_steps(document.get("init", ()), retry),
        phases=tuple(sorted(phases, key=lambda phase: -phase.offset_minutes)),
        on_member_removed=_steps(document.get("on_member_removed", ()), retry),
        rollbacks={name: _steps(steps, retry) for name, steps in rollbacks.items()},
        notifications=read_notifications(document.get("notifications", {})),
    )


def _source(source: dict[str, Any]) -> DataSource:
    multi_valued = source.get("multi_valued_columns", ())
    return DataSource(
        type=source["type"],
        connection=source["connection"],
        query=statement(source.get("query", "")),
        primary_key=source["primary_key"],
        batch_time_column=source.get("batch_time_column"),
        multi_valued=tuple(MultiValued(column["name"], column["format"]) for column in multi_valued),
        absence_seconds=parse_duration(source["absence"]) if "absence" in source else None,
    )


def _approval(approval: dict[str, Any]) -> Approval:
    until = approval.get("until", show_duration(APPROVAL_SECONDS))
    is_offset = until.startswith("T")
    return Approval(
        role=approval.get("role", "operate"),
        count=int(approval.get("count", 1)),
        until_minutes=parse_offset(until) if is_offset else None,
        after_due_seconds=APPROVAL_SECONDS if is_offset else parse_duration(until),
        otherwise=approval.get("otherwise", "fail"),
    )


def _failure_limit(value: Any) -> FailureLimit | None:
    if value is None:
        return None
    return FailureLimit(percent=float(value[:-1])) if isinstance(value, str) else FailureLimit(count=int(value))


def _steps(steps: Iterable[dict[str, Any]], retry: Retry) -> tuple[Step, ...]:
    return tuple(_step(step, retry) for step in steps)


def _step(step: dict[str, Any], retry: Retry) -> Step:
    poll = step.get("poll")
    return Step(
        name=step["name"],
        worker_id=step["worker_id"],
        function=step["function"],
        params=step.get("params", {}),
        output_params=step.get("output_params", {}),
        on_failure=step.get("on_failure"),
        timeout_seconds=parse_duration(step["timeout"]) if "timeout" in step else STEP_TIMEOUT_SECONDS,
        poll=Poll(parse_duration(poll["interval"]), parse_duration(poll["timeout"])) if poll else None,
        retry=_retry(step.get("retry"), retry),
    )


def _retry(value: dict[str, Any] | None, default: Retry) -> Retry:
    if value is None:
        return default
    interval = parse_duration(value["interval"]) if "interval" in value else Retry().interval_seconds
    return Retry(int(value["max_retries"]), interval)
