"""Deciding one job in a turn: its old and new state, and everything that must be written with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from lucius.domain.attempt import Attempt
from lucius.domain.decide import decide
from lucius.domain.draft import IdSource
from lucius.domain.effects import CallWebhook, Decision, Event, PublishDirective, SettleDirective
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Accepted, Input, PublishFailed
from lucius.domain.job import Job, JobStatus
from lucius.engines.directives import directive_ref
from lucius.engines.tenant_cap import TenantCap
from lucius.ports.bus import DeliveryRef, Message, Refused
from lucius.ports.engine import CallbackReply, NewJob, Started
from lucius.ports.ledger import Change, Webhook, followed_attempts

Tell = Callable[[str, Input], "asyncio.Future[CallbackReply | None]"]
"""Adds an input about a job to the next turn."""


async def tell_all(tell: Tell, inputs: Iterable[tuple[str, Input]]) -> list[CallbackReply | BaseException | None]:
    """Add them all to the next turn and wait for every answer; a failure is returned as its exception."""
    replies: list[asyncio.Future[CallbackReply | None]] = []
    refused: list[BaseException] = []
    for job_id, fact in inputs:
        try:
            replies.append(tell(job_id, fact))
        except InfrastructureError as error:  # The queue is full: the rest would be refused too.
            refused.append(error)
            break
    return [*await asyncio.gather(*replies, return_exceptions=True), *refused]


def raise_first(answers: Iterable[CallbackReply | BaseException | None]) -> None:
    """Raise the first failure, if any."""
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


class Pending:
    """An input in a turn, and the future that its caller waits for."""

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
    """One job in a turn: its old and new state, and everything that goes with the change."""

    __slots__ = (
        "before",
        "events",
        "is_remembered",
        "job",
        "messages",
        "new",
        "past_attempts",
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
        self.past_attempts: list[tuple[int, Attempt]] = []
        self.messages: list[Message] = []
        self.publish: list[int] = []
        self.settled: dict[DeliveryRef, None] = {}
        self.webhook: Webhook | None = None

    def change(self, settles_inside: bool) -> Change:
        """`settles_inside`: whether the bus takes part in the commit."""
        assert self.job is not None
        return Change(
            before=self.before,
            after=self.job,
            events=tuple(self.events),
            past_attempts=tuple(self.past_attempts),
            claim=self.new.claim if self.new else None,
            limits=self.new.limits if self.new else (),
            messages=tuple(self.messages),
            settled=tuple(self.settled) if settles_inside else (),
            webhook=self.webhook,
        )


class _MessageRefused(Exception):
    """The enlisted bus will not take a message."""


class Unpublished:
    """The same id source, but for a bus that does not take part in the commit."""

    publishes_inside = False

    def __init__(self, id_source: IdSource) -> None:
        self.claim_seconds = id_source.claim_seconds
        self.holds_back = id_source.holds_back
        self.lease_id = id_source.lease_id
        self.jitter = id_source.jitter


class Decider:
    """Calls `decide` with inputs, and collects the effects of the decisions."""

    def __init__(
        self,
        id_source: IdSource,
        compose: Callable[[Job, int], Message],
        refusal: Callable[[Message], Refused | None],
        cap: TenantCap | None = None,
    ) -> None:
        self._id_source = id_source
        self._compose = compose
        self._refusal = refusal
        self._cap = cap

    @property
    def publishes_inside(self) -> bool:
        return self._id_source.publishes_inside

    def decide(self, work: Work, pending: Pending, now: int) -> None:
        if pending.new is not None:
            work.new = pending.new
        decision = decide(work.job, pending.fact, now, self._id_source)
        try:
            self._absorb(work, decision, now)
        except _MessageRefused as refused:
            # The bus will not take the message: create the attempt again, unpublished, and let its publish fail.
            decision = decide(work.job, pending.fact, now, Unpublished(self._id_source))
            self._absorb(work, decision, now)
            assert work.job is not None
            work.publish.pop()
            step = work.job.current_step
            failed = PublishFailed(step.spec.step_id, step.attempt_no, str(refused))
            self._absorb(work, decide(work.job, failed, now, self._id_source), now)
        assert work.job is not None
        if self._cap is not None:
            self._cap.decided(work.job)
        status = work.job.status
        if isinstance(pending.fact, Accepted):
            pending.answer = Started(pending.job_id, status)
        else:
            pending.answer = CallbackReply(decision.outcome, status, status is JobStatus.CANCELLING)
        work.pending.append(pending)

    def committed(self, job: Job) -> None:
        if self._cap is not None:
            self._cap.committed(job)

    def not_committed(self, job_id: str) -> None:
        """The job is not as it was decided: it is counted when it is decided again."""
        if self._cap is not None:
            self._cap.forget(job_id)

    def _absorb(self, work: Work, decision: Decision, now: int) -> None:
        job = decision.job
        messages: list[Message] = []
        for effect in decision.effects:
            match effect:
                case PublishDirective(step_index=index):
                    if self._id_source.publishes_inside and job.steps[index].attempt_was_sent:
                        messages.append(self._composed(job, index))
                    else:
                        work.publish.append(index)
                case SettleDirective(step_index=index, attempt_no=attempt_no):
                    work.settled[directive_ref(job, index, attempt_no)] = None
                case CallWebhook(url=url):
                    spec = job.spec
                    work.webhook = Webhook(job_id=spec.job_id, url=url, tenant_id=spec.tenant_id, next_at=now)
        if work.job is not None and work.job.attempts_total != job.attempts_total:
            work.past_attempts.extend(followed_attempts(work.job, job))
        work.job = job
        work.events += decision.events
        work.messages += messages

    def _composed(self, job: Job, index: int) -> Message:
        """The bus shares the transaction: message, `Published` and the new state are one commit."""
        message = self._compose(job, index)
        refused = self._refusal(message)
        if refused is not None:
            raise _MessageRefused(refused.reason)
        return message
