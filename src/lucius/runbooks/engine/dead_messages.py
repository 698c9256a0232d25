"""Dead letters of the runbook topics, matched with the tables: the batch, member and step of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lucius.ports.bus import DeadLetter, DeliveryRef
from lucius.ports.database import Script
from lucius.runbooks.core.dead_messages import JOB, RESULT, DeadRunbookMessage, polls
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.messages import (
    BATCH_INIT,
    EVENTS_TOPIC,
    JOBS_TOPIC,
    MEMBER_ADDED,
    MEMBER_REMOVED,
    PHASE_DUE,
    POLL_CHECK,
    RESULT_PREFIX,
    RESULTS_TOPIC,
    Event,
    MessageInvalid,
    batch_init_id,
    parse_job_id,
    read_event,
)
from lucius.runbooks.core.records import Member, Phase
from lucius.runbooks.core.states import ACTIVE, DISPATCHED, INIT_DISPATCHED, Kind
from lucius.runbooks.engine.facts import is_about
from lucius.runbooks.store import batches, executions, inits, members, phases


def look_up(letters: Sequence[DeadLetter]) -> Script[dict[DeliveryRef, DeadRunbookMessage]]:
    """Those of these letters whose batch exists."""
    readable = [(letter, event) for letter in letters if (event := _read(letter)) is not None]
    if not readable:
        return {}
    about_steps = [event for _, event in readable if event.type in (POLL_CHECK, JOB, RESULT)]
    names = {(kind, event.subject_id) for event in about_steps for kind in _kinds(event)}
    steps = yield from executions.by_names(sorted(names))
    readable = [(letter, _with_batch(event, steps)) for letter, event in readable]
    events = [event for _, event in readable]
    batch_ids = sorted({event.batch_id for event in events})
    by_id = yield from batches.by_ids(batch_ids)
    phase_ids = {event.subject_id for event in events if event.type == PHASE_DUE}
    of_phases = {phase.id: phase for phase in (yield from phases.by_ids(sorted(phase_ids)))}
    member_ids = {event.subject_id for event in events if event.type in (MEMBER_ADDED, MEMBER_REMOVED)}
    member_ids |= {one.member_id for one in steps.values() if one.member_id is not None}
    of_members = yield from members.by_ids(member_ids)
    begun = yield from inits.under_way(sorted(by_id))
    found = {}
    for letter, event in readable:
        batch = by_id.get(event.batch_id)
        if batch is None:
            continue
        if event.type == BATCH_INIT:
            is_newest = letter.ref.message_id == batch_init_id(batch.id, batch.version)
            awaited = is_newest and batch.status == INIT_DISPATCHED and batch.id not in begun
            found[letter.ref] = _message(letter, event, awaited)
        elif event.type == PHASE_DUE:
            found[letter.ref] = _phase(letter, event, of_phases.get(event.subject_id))
        elif event.type in (MEMBER_ADDED, MEMBER_REMOVED):
            found[letter.ref] = _member(letter, event, of_members.get(event.subject_id))
        else:
            found[letter.ref] = _step(letter, event, _execution(event, steps), of_members)
    return found


def _read(letter: DeadLetter) -> Event | None:
    """The event of the message; None if it cannot be read."""
    topic, message_id = letter.ref.topic, letter.ref.message_id
    if topic == EVENTS_TOPIC and letter.body is not None:
        try:
            return read_event(letter.body)
        except MessageInvalid:
            return None
    if topic not in (JOBS_TOPIC, RESULTS_TOPIC):
        return None
    name = parse_job_id(message_id.removeprefix(RESULT_PREFIX))
    return None if name is None else Event(JOB if topic == JOBS_TOPIC else RESULT, 0, name[1], name[0])


def _kinds(event: Event) -> tuple[Kind, ...]:
    """What kind of step it may be about: a `poll-check` of the contract does not say it."""
    return ("step", "init") if event.kind is None else (event.kind,)


def _execution(event: Event, steps: Mapping[tuple[Kind, int], Execution]) -> Execution | None:
    found = [steps[name] for kind in _kinds(event) if (name := (kind, event.subject_id)) in steps]
    return next((one for one in found if event.kind is not None or is_about(event, one)), None)


def _with_batch(event: Event, steps: Mapping[tuple[Kind, int], Execution]) -> Event:
    one = _execution(event, steps) if event.type in (JOB, RESULT) else None
    return event if one is None else replace(event, batch_id=one.batch_id)


def _message(letter: DeadLetter, event: Event, is_awaited: bool, **about: Any) -> DeadRunbookMessage:
    return DeadRunbookMessage(
        ref=letter.ref, type=event.type, reason=letter.reason, dead_at=letter.dead_at,
        delivery_count=letter.delivery_count, has_body=letter.body is not None, batch_id=event.batch_id,
        is_awaited=is_awaited, **about,
    )  # fmt: skip


def _phase(letter: DeadLetter, event: Event, phase: Phase | None) -> DeadRunbookMessage:
    if phase is None:
        return _message(letter, event, False)
    is_awaited = phase.status == DISPATCHED and phase.barrier_index is None
    return _message(letter, event, is_awaited, phase_id=phase.id, phase=phase.name)


def _member(letter: DeadLetter, event: Event, member: Member | None) -> DeadRunbookMessage:
    if member is None:
        return _message(letter, event, False)
    if event.type == MEMBER_ADDED:
        is_sent, is_handled = member.add_dispatched_at is not None, member.add_handled_at is not None
        is_awaited = member.status == ACTIVE and is_sent and not is_handled
    else:
        is_awaited = member.remove_dispatched_at is not None and member.remove_handled_at is None
    return _message(letter, event, is_awaited, member_id=member.id, member=member.key)


def _step(
    letter: DeadLetter, event: Event, one: Execution | None, of_members: Mapping[int, Member]
) -> DeadRunbookMessage:
    if one is None:
        return _message(letter, event, False)
    if event.type == POLL_CHECK:
        is_awaited = polls(one, event.poll_count)
    else:
        is_awaited = one.is_open and one.in_flight and one.job_id == letter.ref.message_id.removeprefix(RESULT_PREFIX)
    return _message(
        letter, event, is_awaited, phase_id=one.phase_id, phase=one.list_name, member_id=one.member_id,
        member=of_members[one.member_id].key if one.member_id is not None else None, execution=(one.kind, one.id),
        step=one.step_name, worker_id=one.worker_id, timeout_at=one.timeout_at,
    )  # fmt: skip
