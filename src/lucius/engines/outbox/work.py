"""Deciding one job in a turn: what it was, what it becomes, and everything that must be written with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lucius.domain.decide import decide
from lucius.domain.directive import message_id
from lucius.domain.draft import Fresh
from lucius.domain.effects import CallWebhook, Decision, Event, PublishDirective, SettleDirective
from lucius.domain.inputs import Accepted, Input, PublishFailed
from lucius.domain.job import Job, JobStatus
from lucius.ports.bus import DeliveryRef, Message, Refused
from lucius.ports.engine import NewJob, Started, Told
from lucius.ports.ledger import Change, Webhook


class Pending:
    """An input on its way through a turn, and who waits for what comes of it."""

    __slots__ = ("answer", "fact", "future", "job_id", "new", "tenant_id", "tries")

    def __init__(
        self,
        job_id: str,
        fact: Input,
        future: asyncio.Future[Any],
        tenant_id: str | None = None,
        new: NewJob | None = None,
    ) -> None:
        self.job_id = job_id
        self.fact = fact
        self.future = future
        self.tenant_id = tenant_id
        self.new = new
        self.answer: Any = None
        self.tries = 0


class Work:
    """One job in a turn: what it was, what it has become, and everything that goes with the change."""

    __slots__ = (
        "before",
        "events",
        "is_remembered",
        "job",
        "messages",
        "new",
        "pending",
        "publish",
        "settled",
        "webhook",
    )

    def __init__(self, before: Job | None, is_remembered: bool = False) -> None:
        self.before = before
        self.is_remembered = is_remembered
        self.job = before
        self.new: NewJob | None = None
        self.pending: list[Pending] = []
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.publish: list[int] = []
        self.settled: dict[DeliveryRef, None] = {}
        self.webhook: Webhook | None = None

    def change(self) -> Change:
        assert self.job is not None
        return Change(
            before=self.before,
            after=self.job,
            events=tuple(self.events),
            claim=self.new.claim if self.new else None,
            limits=self.new.limits if self.new else (),
            messages=tuple(self.messages),
            settled=tuple(self.settled),
            webhook=self.webhook,
        )


class _MessageRefused(Exception):
    """The enlisted bus will not take a message."""


class Unpublished:
    """Fresh things as they are, but for a bus that does not take part in the commit."""

    publishes_inside = False

    def __init__(self, fresh: Fresh) -> None:
        self.claim_seconds = fresh.claim_seconds
        self.lease_id = fresh.lease_id
        self.jitter = fresh.jitter


class Decider:
    """Puts inputs to `decide`, and gathers what their decisions order."""

    def __init__(
        self,
        fresh: Fresh,
        compose: Callable[[Job, int], Message],
        refusal: Callable[[Message], Refused | None],
    ) -> None:
        self._fresh = fresh
        self._compose = compose
        self._refusal = refusal

    @property
    def publishes_inside(self) -> bool:
        return self._fresh.publishes_inside

    def decide(self, work: Work, pending: Pending, now: int) -> None:
        work.new = pending.new or work.new
        decision = decide(work.job, pending.fact, now, self._fresh)
        try:
            self._absorb(work, decision, now)
        except _MessageRefused as refused:
            # The bus will not have the message: make the attempt anew, unpublished, and let its publish fail.
            decision = decide(work.job, pending.fact, now, Unpublished(self._fresh))
            self._absorb(work, decision, now)
            assert work.job is not None
            work.publish.pop()
            step = work.job.current_step
            failed = PublishFailed(step.spec.step_id, step.attempt_no, str(refused))
            self._absorb(work, decide(work.job, failed, now, self._fresh), now)
        job = work.job
        assert job is not None
        if isinstance(pending.fact, Accepted):
            pending.answer = Started(job.job_id, job.status)
        else:
            pending.answer = Told(decision.outcome, job.status, job.status is JobStatus.CANCELLING)
        work.pending.append(pending)

    def _absorb(self, work: Work, decision: Decision, now: int) -> None:
        job = decision.job
        messages: list[Message] = []
        for effect in decision.effects:
            match effect:
                case PublishDirective(step_index=index):
                    if self._fresh.publishes_inside and job.steps[index].attempt_was_sent:
                        messages.append(self._composed(job, index))
                    else:
                        work.publish.append(index)
                case SettleDirective(step_index=index, attempt_no=attempt_no):
                    work.settled[_delivery_ref(job, index, attempt_no)] = None
                case CallWebhook(url=url):
                    spec = job.spec
                    work.webhook = Webhook(job_id=spec.job_id, url=url, tenant_id=spec.tenant_id, next_at=now)
        work.job = job
        work.events.extend(decision.events)
        work.messages.extend(messages)

    def _composed(self, job: Job, index: int) -> Message:
        """The bus shares the transaction: message, `Published` and the new state are one commit."""
        message = self._compose(job, index)
        refused = self._refusal(message)
        if refused is not None:
            raise _MessageRefused(refused.reason)
        return message


def _delivery_ref(job: Job, step_index: int, attempt_no: int) -> DeliveryRef:
    step = job.steps[step_index].spec
    return DeliveryRef(job.spec.routing.topic, step.service, message_id(job.job_id, step.step_id, attempt_no))
