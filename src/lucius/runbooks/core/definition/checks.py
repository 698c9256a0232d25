"""Checks beyond the schema: names that must be unique or must exist, limits, queries, columns.

The checks read the document even if its shape is invalid, and skip parts they cannot read, so that one pass finds every
fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lucius.domain.notifications import RUNBOOK_CAUSES, recipient_faults
from lucius.domain.payload import pointer_token
from lucius.runbooks.core.definition.durations import parse_duration, parse_offset
from lucius.runbooks.core.definition.faults import Finding, Found
from lucius.runbooks.core.definition.names import column_fault, columns_faults
from lucius.runbooks.core.definition.places import clipped
from lucius.runbooks.core.definition.query import query_fault
from lucius.runbooks.core.definition.recipients import read_recipient

PARAMS_BYTES_MAX = 32_768

Kind = Literal["init", "step", "removal", "rollback"]


class StepList(Struct, frozen=True):
    """A list of steps as written in the text: its items that are mappings, each with its pointer."""

    kind: Kind
    pointer: str
    offset: str | None
    """The offset of a phase, if it is a string."""
    steps: list[tuple[str, dict[str, Any]]]


def step_lists(document: dict[str, Any]) -> list[StepList]:
    found = [_step_list("init", "/init", document.get("init"))]
    for pointer, phase in _mappings(document.get("phases"), "/phases"):
        found.append(_step_list("step", f"{pointer}/steps", phase.get("steps"), text(phase, "offset")))
    found.append(_step_list("removal", "/on_member_removed", document.get("on_member_removed")))
    for name, steps in mapping(document.get("rollbacks")).items():
        found.append(_step_list("rollback", f"/rollbacks/{pointer_token(name)}", steps))
    return found


def _step_list(kind: Kind, pointer: str, steps: Any, offset: str | None = None) -> StepList:
    return StepList(kind, pointer, offset, list(_mappings(steps, pointer)))


def _mappings(value: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield f"{pointer}/{index}", item


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


def sense_faults(document: dict[str, Any], columns: Sequence[str] | None) -> Found:
    faults = _source_faults(mapping(document.get("data_source")), columns)
    faults += _duration_faults(mapping(document.get("retry")), "/retry", "interval")
    phases = list(_mappings(document.get("phases"), "/phases"))
    faults += _duplicates(phases, "phase")
    for pointer, phase in phases:
        faults += _offset_faults(phase, pointer)
        faults += _approval_faults(phase, pointer)
    faults += _notification_faults(mapping(document.get("notifications")))
    rollbacks = [*mapping(document.get("rollbacks"))]
    for steps in step_lists(document):
        faults += _duplicates(steps.steps, "step")
        for pointer, step in steps.steps:
            faults += _step_faults(step, pointer, rollbacks)
    return faults


def _notification_faults(notifications: dict[str, Any]) -> Found:
    faults = _duration_faults(notifications, "/notifications", "deadline")
    faults += _duration_faults(notifications, "/notifications", "warn_before")
    recipients = list(_mappings(notifications.get("recipients"), "/notifications/recipients"))
    faults += _duplicates(recipients, "recipient")
    for pointer, value in recipients:
        faults += _duration_faults(value, pointer, "interval")
        try:
            one = read_recipient(value)
        except (ValueError, TypeError):
            continue  # Its shape is invalid, which the schema has said.
        faults += [Finding(f"{pointer}{place}", message) for place, message in recipient_faults(one, RUNBOOK_CAUSES)]
    return faults


def _duplicates(items: list[tuple[str, dict[str, Any]]], noun: str) -> Found:
    faults: Found = []
    seen: set[str] = set()
    for pointer, item in items:
        name = text(item, "name")
        if name is None:
            continue
        if name in seen:
            faults.append(Finding(f"{pointer}/name", f"duplicate {noun} name; rename one of them"))
        seen.add(name)
    return faults


def _offset_faults(phase: dict[str, Any], pointer: str) -> Found:
    try:
        parse_offset(text(phase, "offset") or "T-0")
    except ValueError as error:
        return [Finding(f"{pointer}/offset", str(error))]
    return []


def _approval_faults(phase: dict[str, Any], pointer: str) -> Found:
    if "approval" not in phase:
        return []
    faults: Found = []
    if "/" in (text(phase, "name") or ""):  # It is part of the address at which it is approved.
        faults.append(Finding(f"{pointer}/name", "the name of a phase with approval must not contain /"))
    until = text(mapping(phase["approval"]), "until")
    if until is None:
        return faults
    try:
        if not until.startswith("T"):
            parse_duration(until)
        elif parse_offset(until) >= parse_offset(text(phase, "offset") or "T-0"):
            detail = "must be after the phase is due, which is when it begins to wait for approval"
            faults.append(Finding(f"{pointer}/approval/until", detail))
    except ValueError as error:
        faults.append(Finding(f"{pointer}/approval/until", str(error)))
    return faults


def _duration_faults(value: dict[str, Any], pointer: str, *keys: str) -> Found:
    faults: Found = []
    for key in keys:
        duration = text(value, key)
        if duration is None:
            continue
        try:
            parse_duration(duration)
        except ValueError as error:
            faults.append(Finding(f"{pointer}/{key}", str(error)))
    return faults


def _step_faults(step: dict[str, Any], pointer: str, rollbacks: list[str]) -> Found:
    faults = _duration_faults(step, pointer, "timeout")
    faults += _duration_faults(mapping(step.get("retry")), f"{pointer}/retry", "interval")
    faults += _poll_faults(mapping(step.get("poll")), f"{pointer}/poll")
    rollback = text(step, "on_failure")
    if rollback and rollback not in rollbacks:
        detail = f"unknown rollback {clipped(rollback)!r}"
        faults.append(Finding(f"{pointer}/on_failure", detail, rollback, rollbacks))
    size = len(msgspec.json.encode(mapping(step.get("params"))))
    if size > PARAMS_BYTES_MAX:
        detail = f"the parameters have {size} bytes as JSON; at most {PARAMS_BYTES_MAX} are allowed"
        faults.append(Finding(f"{pointer}/params", detail))
    return faults


def _poll_faults(poll: dict[str, Any], pointer: str) -> Found:
    faults = _duration_faults(poll, pointer, "interval", "timeout")
    interval, timeout = text(poll, "interval"), text(poll, "timeout")
    if faults or interval is None or timeout is None:
        return faults
    if parse_duration(interval) > parse_duration(timeout):
        detail = f"the interval of {interval} is longer than the timeout of {timeout}, so it would never poll"
        return [Finding(f"{pointer}/interval", detail)]
    return []


def _source_faults(source: dict[str, Any], columns: Sequence[str] | None) -> Found:
    faults = _duration_faults(source, "/data_source", "absence")
    query = text(source, "query")
    if query and (fault := query_fault(query)):
        faults.append(Finding("/data_source/query", fault))
    named = [(f"/data_source/{key}", text(source, key)) for key in ("primary_key", "batch_time_column")]
    single = {name for _, name in named if name}
    seen: set[str] = set()
    for pointer, column in _mappings(source.get("multi_valued_columns"), "/data_source/multi_valued_columns"):
        name = text(column, "name")
        named.append((f"{pointer}/name", name))
        if name in seen:
            faults.append(Finding(f"{pointer}/name", "duplicate column; remove one of them"))
        if name in single:
            faults.append(
                Finding(f"{pointer}/name", "the primary key and the batch time have a single value; remove this")
            )
        seen.add(name or "")
    for pointer, name in named:
        if name and (fault := column_fault(name)):
            faults.append(Finding(pointer, fault))
        elif name and columns is not None and name not in columns:
            faults.append(Finding(pointer, f"the source has no column {clipped(name)!r}", name, columns))
    where = "/data_source/query" if query else "/data_source"
    return faults + [Finding(where, fault) for fault in columns_faults(columns or ())]
