"""Compares two versions of a runbook: what was added, removed and changed, in readable form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lucius.domain.notifications import Recipient
from lucius.runbooks.core.definition.calendar_reading import window_text
from lucius.runbooks.core.definition.durations import show_duration, show_offset
from lucius.runbooks.core.definition.model import (
    Approval,
    DataSource,
    FailureLimit,
    MultiValued,
    Phase,
    Retry,
    Runbook,
    Step,
)

SHOWN_CHARS_MAX = 200

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class Difference(Struct, frozen=True):
    kind: Literal["added", "removed", "changed"]
    where: str
    """Such as `phase pre-notification / step notify / params.Url`."""
    before: str | None
    after: str | None


def differences(old: Runbook, new: Runbook) -> list[Difference]:
    """In the order of a runbook's text. A renamed item is removed under one name and added under the other."""
    found = _members("", _head(old), _head(new))
    found += _lists("init step ", old.init, new.init, "init")
    found += _phases(old, new)
    found += _lists("removal step ", old.on_member_removed, new.on_member_removed, "on_member_removed")
    for name in dict.fromkeys([*old.rollbacks, *new.rollbacks]):
        before, after = old.rollbacks.get(name), new.rollbacks.get(name)
        where = f"rollback {name}"
        if before is None or after is None:
            found.append(_one(where, _steps_shown(before), _steps_shown(after)))
        else:
            found += _lists(f"{where} / step ", before, after, where)
    return found


def show(found: Iterable[Difference]) -> str:
    """One line per difference; empty if there are none."""
    return "\n".join(map(_line, found))


def _line(found: Difference) -> str:
    values = [_clipped(value) for value in (found.before, found.after) if value is not None]
    return f"{_SIGNS[found.kind]} {found.where}" + (f": {' → '.join(values)}" if values else "")


def _clipped(value: str) -> str:
    return value if len(value) <= SHOWN_CHARS_MAX else value[:SHOWN_CHARS_MAX] + "…"


def _head(runbook: Runbook) -> dict[str, Any]:
    source = runbook.source
    stated = {
        "name": runbook.name,
        "description": runbook.description or None,
        "data_source.type": source.type if source else "manual",
        "data_source.connection": source.connection if source else None,
        "data_source.query": (source.query or None) if source else None,
        "data_source.primary_key": runbook.primary_key,
        "data_source.batch_time": (source.batch_time_column or "immediate") if source else None,
        "data_source.absence": _absence(source),
        "data_source.multi_valued_columns": _columns(source.multi_valued if source else ()),
        "progression": runbook.progression,
        "max_parallel": runbook.max_parallel,
        "max_failures": _limit(runbook.max_failures),
        "time_zone": runbook.calendar.time_zone,
        "windows": "; ".join(window_text(window) for window in runbook.calendar.windows) or None,
        "freeze": "; ".join(freeze.name for freeze in runbook.calendar.freezes) or None,
        "notifications": _notifications(runbook),
    }
    return _without_none(stated)


def _notifications(runbook: Runbook) -> dict[str, Any] | None:
    stated = runbook.notifications
    if not stated.recipients and stated.deadline_seconds is None:
        return None
    return _without_none({
        "deadline": None if stated.deadline_seconds is None else show_duration(stated.deadline_seconds),
        "warn_before": show_duration(stated.warn_before_seconds),
        **{one.name: _recipient(one) for one in stated.recipients},
    })  # fmt: skip


def _recipient(one: Recipient) -> dict[str, Any]:
    return {
        name: value
        for name, value in msgspec.to_builtins(one).items()
        if value not in (None, [], "") and name != "name"
    }


def _absence(source: DataSource | None) -> str | None:
    return None if source is None or source.absence_seconds is None else show_duration(source.absence_seconds)


def _without_none(stated: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stated.items() if value is not None}


def _columns(columns: Sequence[MultiValued]) -> dict[str, str]:
    return {column.name: column.format for column in columns}


def _limit(limit: FailureLimit | None) -> int | str | None:
    if limit is None:
        return None
    return limit.count if limit.count is not None else f"{limit.percent:g}%"


def _phases(old: Runbook, new: Runbook) -> list[Difference]:
    before = {phase.name: phase for phase in old.phases}
    after = {phase.name: phase for phase in new.phases}
    found: list[Difference] = []
    for name in dict.fromkeys([*before, *after]):
        where = f"phase {name}"
        if name not in before or name not in after:
            found.append(_one(where, _phase_shown(before.get(name)), _phase_shown(after.get(name))))
            continue
        found += _members(f"{where} / ", _phase(before[name]), _phase(after[name]))
        found += _lists(f"{where} / step ", before[name].steps, after[name].steps, f"{where} / steps")
    # A moved offset explains a new order; among phases with the same offset, the order is itself a change.
    moved = any(before[name].offset_minutes != after[name].offset_minutes for name in before.keys() & after.keys())
    return found if moved else found + _order("phases", [*before], [*after])


def _phase(phase: Phase) -> dict[str, Any]:
    approval = None if phase.approval is None else approval_text(phase.approval)
    return _without_none({"offset": show_offset(phase.offset_minutes), "approval": approval})


def approval_text(approval: Approval) -> str:
    """As in `2 approvals by operate until T-1h, otherwise fail`."""
    if approval.until_minutes is None:
        until = f"{show_duration(approval.after_due_seconds)} after it is due"
    else:
        until = show_offset(approval.until_minutes)
    count = "1 approval" if approval.count == 1 else f"{approval.count} approvals"
    return f"{count} by {approval.role} until {until}, otherwise {approval.otherwise}"


def _phase_shown(phase: Phase | None) -> str | None:
    return None if phase is None else f"{show_offset(phase.offset_minutes)}, {_steps_shown(phase.steps)}"


def _steps_shown(steps: Sequence[Step] | None) -> str | None:
    return None if steps is None else f"steps {', '.join(step.name for step in steps) or 'none'}"


def _lists(prefix: str, old: Sequence[Step], new: Sequence[Step], whole: str) -> list[Difference]:
    before = {step.name: step for step in old}
    after = {step.name: step for step in new}
    found: list[Difference] = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            found.append(_one(prefix + name, _step_shown(before.get(name)), _step_shown(after.get(name))))
        else:
            found += _members(f"{prefix}{name} / ", _step(before[name]), _step(after[name]))
    return found + _order(whole, [*before], [*after])


def _order(where: str, before: list[str], after: list[str]) -> list[Difference]:
    """The order of the common items, if it differs."""
    common = [name for name in before if name in after]
    now = [name for name in after if name in before]
    return [] if common == now else [Difference("changed", f"{where}, their order", ", ".join(common), ", ".join(now))]


def _step_shown(step: Step | None) -> str | None:
    return None if step is None else f"{step.function} at {step.worker_id}"


def _step(step: Step) -> dict[str, Any]:
    stated = {
        "worker_id": step.worker_id,
        "function": step.function,
        "params": step.params,
        "output_params": step.output_params,
        "on_failure": step.on_failure,
        "timeout": show_duration(step.timeout_seconds),
        "poll.interval": show_duration(step.poll.interval_seconds) if step.poll else None,
        "poll.timeout": show_duration(step.poll.timeout_seconds) if step.poll else None,
        "retry": _retry(step.retry),
    }
    return _without_none(stated)


def _retry(retry: Retry) -> str:
    return f"{retry.max_retries} after {show_duration(retry.interval_seconds)} each" if retry.max_retries else "none"


def _members(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Mappings are compared key by key at any depth, everything else as a whole."""
    found: list[Difference] = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += _members(f"{prefix}{key}.", before, after)
        elif _shown(before) != _shown(after):
            found.append(_one(f"{prefix}{key}", _shown(before), _shown(after)))
    return found


_ABSENT = object()


def _shown(value: Any) -> str | None:
    """As JSON; text is unquoted if it cannot be mistaken for another value."""
    if value is _ABSENT:
        return None
    if isinstance(value, str) and value.isprintable() and value == value.strip() and not _is_json(value):
        return value
    return msgspec.json.encode(value).decode()


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return not text
    return True


def _one(where: str, before: str | None, after: str | None) -> Difference:
    if before is None:
        return Difference("added", where, None, after)
    return Difference("removed" if after is None else "changed", where, before, after)
