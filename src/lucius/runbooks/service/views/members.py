"""Members of a batch with their steps: the grid, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lucius.domain.time import Instant, iso
from lucius.ports.bus import DeadLetter
from lucius.ports.database import Script
from lucius.runbooks.core import answers
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.core.member_waits import MemberState, member_waits
from lucius.runbooks.core.records import FROM_SOURCE, Member, Phase
from lucius.runbooks.core.start_rules import sending_wait
from lucius.runbooks.core.states import ACTIVE, DISPATCHED
from lucius.runbooks.core.steps import step_of
from lucius.runbooks.service.views.batches import batch_exists, dead_of_batch
from lucius.runbooks.service.views.pages import Paged, json_text, moment
from lucius.runbooks.store import absences, approvals, controls, followups, members, phases, steps
from lucius.runbooks.store.data_tables import Data, last_known
from lucius.runbooks.store.definitions import Definitions

MEMBER_FILTERS = ("active", "removed", "failed", "held", "all")
RESULT_CHARS_MAX = 2_000
"""Limit for a step's result in a list; longer results are shown only for a single member."""


def member_page(
    batch_id: int,
    status: str,
    key: str | None,
    limit: int,
    after: int | None,
    definitions: Definitions,
    letters: Sequence[DeadLetter],
    now: Instant,
    absent: Absent = nobody_absent,
) -> Script[Paged[answers.Member]]:
    batch = yield from batch_exists(batch_id)
    found, next_id = yield from members.listed(batch_id, status, key, limit, after)
    if not found:
        return [], None
    ids = [member.id for member in found]
    of_steps = _by_member((yield from steps.of_members(ids)))
    of_followups = _by_member((yield from followups.of_members(ids)))
    of_phases = {phase.id: phase for phase in (yield from phases.of_batch(batch_id))}
    runbooks: dict[int, Runbook] = {}
    for version in {batch.version, *(phase.version for phase in of_phases.values())}:
        runbooks[version] = yield from definitions.get(batch.runbook_name, version)
    barriers = yield from _barriers(of_phases, runbooks)
    control = yield from controls.read(batch.runbook_name)
    missing = {}
    if batch.origin == FROM_SOURCE:
        missing = yield from absences.of_members(ids, batch.runbook_name)
    dead = yield from dead_of_batch(batch_id, letters)
    decisions = yield from approvals.of_batch(batch_id)
    data: dict[str, Data] = {}
    if key is not None:
        data = yield from last_known(runbooks[batch.version], batch.version, [key])
    wait = sending_wait(runbooks[batch.version], now)
    shown = []
    for member in found:
        own = of_steps.get(member.id, [])
        state = MemberState(
            batch=batch, runbook=runbooks[batch.version], automation=control.automation, member_id=member.id,
            is_active=member.status == ACTIVE, has_failed=member.failed_at is not None,
            absence=missing.get(member.id), steps=own, followups=of_followups.get(member.id, []), phases=of_phases,
            barriers=barriers, retries=_retries(own, runbooks), held_for=member.move_to if member.is_held else None,
            dead=dead, absent=absent, now=now, wait=wait, decisions=decisions,
        )  # fmt: skip
        one = _member(member, state, is_alone=key is not None)
        if key is not None:
            row = data.get(member.key)
            one["row"] = None if row is None else dict(row)
        shown.append(one)
    return shown, next_id


def _by_member(found: Sequence[Execution]) -> dict[int, list[Execution]]:
    grouped: dict[int, list[Execution]] = {}
    for one in found:
        if one.member_id is not None:
            grouped.setdefault(one.member_id, []).append(one)
    return grouped


def _barriers(of_phases: Mapping[int, Phase], runbooks: Mapping[int, Runbook]) -> Script[dict[int, tuple[str, int]]]:
    found = {}
    for phase in of_phases.values():
        runbook = runbooks[phase.version]
        if phase.status != DISPATCHED or runbook.progression != "barrier" or phase.barrier_index is None:
            continue
        defined = runbook.phase(phase.name).steps
        if phase.barrier_index < len(defined):
            count = yield from steps.count_open_at(phase.id, phase.barrier_index)
            found[phase.id] = (defined[phase.barrier_index].name, count)
    return found


def _retries(own: Sequence[Execution], runbooks: Mapping[int, Runbook]) -> dict[int, int]:
    waiting = [one for one in own if one.retry_at is not None]
    return {one.id: step_of(runbooks[one.version], one).retry.max_retries for one in waiting}


def _member(member: Member, state: MemberState, is_alone: bool) -> answers.Member:
    return {
        "member_id": member.id, "member": member.key, "status": member.status,
        "failed_at": moment(member.failed_at), "added_at": iso(member.added_at),
        "removed_at": moment(member.removed_at),
        "move_to": moment(member.move_to), "move_held_at": moment(member.move_held_at if member.is_held else None),
        "steps": [_step(one, is_alone) for one in state.steps],
        "followups": [
            {
                "kind": one.kind, "list": one.list_name, "step": one.step_name, "status": one.status,
                "error": one.error_message,
            }
            for one in state.followups
        ],
        "waiting_for": member_waits(state),
    }  # fmt: skip


def _step(one: Execution, is_alone: bool) -> answers.MemberStep:
    shown: answers.MemberStep = {
        "phase": one.list_name, "step": one.step_name, "status": one.status, "attempts": one.dispatch_count,
        "error": one.error_message, "dispatched_at": moment(one.dispatched_at),
        "completed_at": moment(one.completed_at),
    }  # fmt: skip
    if one.result_json is not None:
        if is_alone or len(one.result_json) <= RESULT_CHARS_MAX:
            shown["result"] = json_text(one.result_json)
        else:
            shown["result_chars"] = len(one.result_json)
    return shown
