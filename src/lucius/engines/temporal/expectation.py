"""What a workflow is expected to decide, given a state of its job. The workflow makes the actual decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from lucius.domain.attempt import Attempt
from lucius.domain.decide import decide
from lucius.domain.draft import IdSource
from lucius.domain.effects import Decision, Event, Outcome, SettleDirective
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Operation, Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.time import Instant
from lucius.engines.directives import directive_ref
from lucius.ports.bus import DeliveryRef
from lucius.ports.engine import CallbackReply

UNNAMED = "(unnamed)"
"""Stands for the instance in an attempt whose RESULT came without an ACK, so that no other instance begins it."""


class Holder(NamedTuple):
    """The instance of a service that has an attempt."""

    step_index: int
    attempt_no: int
    lease_id: str
    instance: str


class Expected(NamedTuple):
    answers: Sequence[CallbackReply | None]
    job: Job
    events: tuple[Event, ...] = ()
    facts: Sequence[Callback | Operation] = ()
    """The facts to send to the workflow."""
    settled: Sequence[DeliveryRef] = ()
    """Directives that need not be delivered again once the workflow has these facts."""
    holders: Sequence[Holder] = ()
    """Which instance will have which attempt."""

    @classmethod
    def undecided(cls, job: Job, fact: Callback | Operation) -> Expected:
        return cls([_reply(Outcome.RECEIVED, job)], job, facts=[fact])

    @property
    def is_refused_operation(self) -> bool:
        """Callbacks are never answered with a conflict."""
        return any(reply is not None and reply.outcome is Outcome.CONFLICT for reply in self.answers)


def expect(
    job: Job, incoming: Sequence[tuple[str | None, Callback | Operation]], now: Instant, id_source: IdSource
) -> Expected:
    """`incoming` are facts in order, each with the tenant that it is for; None is any tenant."""
    answers: list[CallbackReply | None] = []
    events: tuple[Event, ...] = ()
    facts: list[Callback | Operation] = []
    settled: list[DeliveryRef] = []
    holders: list[Holder] = []
    after = job
    for tenant_id, fact in incoming:
        if tenant_id is not None and job.spec.tenant_id != tenant_id:
            answers.append(None)
            continue
        decision = decide(after, fact, now, id_source)
        holders += _holders(after, fact, decision)
        is_news = decision.job is not after
        after, outcome = decision.job, decision.outcome
        events += decision.events
        if not isinstance(fact, Operation):
            # The workflow decides what an operation does to a directive, which it may have to withdraw.
            settled += _settled(job, decision)
        if outcome is Outcome.APPLIED or (is_news and not isinstance(fact, Operation)):
            # A callback that is not applied and is already in the trail would only make the workflow's history longer.
            facts.append(_with_holder(fact, after))
        if outcome is Outcome.APPLIED and not job.is_terminal:
            outcome = Outcome.RECEIVED
        answers.append(_reply(outcome, after))
    return Expected(answers, after, events, facts, settled, holders)


def _settled(job: Job, decision: Decision) -> list[DeliveryRef]:
    effects = (effect for effect in decision.effects if isinstance(effect, SettleDirective))
    return [directive_ref(job, effect.step_index, effect.attempt_no) for effect in effects]


def _reply(outcome: Outcome, job: Job) -> CallbackReply:
    return CallbackReply(outcome, job.status, job.status is JobStatus.CANCELLING)


def _holders(job: Job, fact: Callback | Operation, decision: Decision) -> list[Holder]:
    """The instance that has the attempt from now on, if this fact is the first to name one."""
    if decision.outcome is not Outcome.APPLIED or not isinstance(fact, Acked | Resulted):
        return []
    attempt = _attempt(job, fact)
    instance = fact.acked_by if isinstance(fact, Acked) else UNNAMED
    if attempt is None or attempt.acked_at is not None or attempt.acked_by is not None or instance is None:
        return []
    index = job.index_of(fact.step_id)
    assert index is not None
    return [Holder(index, attempt.attempt_no, attempt.lease_id, instance)]


def _with_holder(fact: Callback | Operation, job: Job) -> Callback | Operation:
    """A second ACK names the first instance, because its signal may overtake that of the first ACK."""
    attempt = _attempt(job, fact) if isinstance(fact, Acked) else None
    if attempt is None or not isinstance(fact, Acked) or attempt.acked_by in (None, fact.acked_by):
        return fact
    return replace(fact, held_by=attempt.acked_by)


def _attempt(job: Job, fact: Acked | HeartbeatSeen | Resulted) -> Attempt | None:
    """The step's current attempt, if the callback is about it."""
    index = job.index_of(fact.step_id)
    attempt = None if index is None else job.steps[index].attempt
    return attempt if attempt is not None and attempt.lease_id == fact.lease_id else None
