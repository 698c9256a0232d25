"""What both engines do with directives on the bus: compose and name them, and settle those that are out of date."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls, build_directive, message_id
from lucius.domain.handlers.bus import is_refused_for_now, is_unsent
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.ports.bus import Bus, Delivery, DeliveryRef, Message
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger, LedgerUnavailable
from lucius.ports.observer import Observer

UNDELIVERED_MAX = 5_000
LOADED_MAX = 500

log = logging.getLogger("lucius.bus")

_decode = msgspec.json.Decoder().decode
_KIND_WORDS = {str: "a string", int: "a whole number"}

Trace = Callable[[Job, int], str | None]
"""The traceparent that the directive of a step carries."""


def composer(clock: Clock, signer: TokenSigner, urls: CallbackUrls, trace: Trace) -> Callable[[Job, int], Message]:
    """A function that makes the message of a step's current attempt."""

    def compose(job: Job, step_index: int) -> Message:
        body, properties = build_directive(job, step_index, clock.now(), signer, urls, trace(job, step_index))
        step = job.steps[step_index]
        name = message_id(job.job_id, step.spec.step_id, step.attempt_no)
        return Message(
            id=name,
            topic=job.spec.routing.topic,
            body=body,
            properties=properties,
            subject=step.spec.step_type,
            correlation_id=job.spec.correlation_id,
        )

    return compose


def directive_ref(job: Job, step_index: int, attempt_no: int) -> DeliveryRef:
    step = job.steps[step_index].spec
    return DeliveryRef(job.spec.routing.topic, step.service, message_id(job.job_id, step.step_id, attempt_no))


def current_directive_ref(job: Job) -> DeliveryRef:
    return directive_ref(job, job.current_index, job.current_step.attempt_no)


async def drop_past(ledger: Ledger, bus: Bus, deliveries: Sequence[Delivery], observer: Observer) -> list[Delivery]:
    """Settle the directives that, according to the ledger, no service needs any more; returns the others.

    If the bus is in the ledger's database there are none: the commit that ends an attempt settles its directive.
    """
    if not deliveries or ledger.enlists(bus):
        return list(deliveries)
    deliveries = await _drop_foreign(bus, deliveries, observer)
    try:
        jobs = await ledger.load(list({delivery.properties["jobId"] for delivery in deliveries}))
    except LedgerUnavailable:
        await bus.abandon([delivery.ref for delivery in deliveries])
        raise
    past = [delivery for delivery in deliveries if _is_past(jobs.get(delivery.properties["jobId"]), delivery)]
    if past:
        await bus.settle([delivery.ref for delivery in past])
    return [delivery for delivery in deliveries if delivery not in past]


async def _drop_foreign(bus: Bus, deliveries: Sequence[Delivery], observer: Observer) -> list[Delivery]:
    """On a broker anybody may publish: what is no directive becomes a dead letter; returns the others."""
    reasons = {delivery.ref: reason for delivery in deliveries if (reason := _foreign(delivery)) is not None}
    for ref, reason in reasons.items():
        log.warning(
            "message %s in %s/%s is made a dead letter: %s", ref.message_id, ref.topic, ref.subscription, reason
        )
        await bus.dead_letter([ref], reason)
        observer.message_refused(ref.topic, "MALFORMED")
    return [delivery for delivery in deliveries if delivery.ref not in reasons]


def _foreign(delivery: Delivery) -> str | None:
    """Why a message cannot be a directive."""
    for name, kind in (("jobId", str), ("stepId", str), ("attempt_no", int)):
        if not isinstance(delivery.properties.get(name), kind):
            return f"MALFORMED: a directive has the property {name}, {_KIND_WORDS[kind]}"
    try:
        body = _decode(delivery.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"MALFORMED: the body of a directive is JSON: {error}"
    is_directive = isinstance(body, dict) and body.get("jobId") == delivery.properties["jobId"]
    return None if is_directive else "MALFORMED: the body is not the directive that the properties name"


async def undelivered(ledger: Ledger, engine: str) -> AsyncIterator[list[str]]:
    """All jobs of an engine whose current directive is unsent, or waits because the bus refused it; some at a time.
    Raises `LedgerUnavailable`."""
    after_id: str | None = None
    while job_ids := await ledger.undelivered(engine, UNDELIVERED_MAX, after_id):
        after_id = job_ids[-1]
        for first in range(0, len(job_ids), LOADED_MAX):
            jobs = await ledger.load(job_ids[first : first + LOADED_MAX])
            waiting = [job.job_id for job in jobs.values() if is_unsent(job) or is_refused_for_now(job)]
            if waiting:
                yield waiting


def _is_past(job: Job | None, delivery: Delivery) -> bool:
    """Whether its job or attempt is over, or a service has acknowledged it already."""
    index = None if job is None else job.index_of(delivery.properties["stepId"])
    if job is None or index is None:
        return True
    attempt_no: int = delivery.properties["attempt_no"]
    return attempt_no <= _last_past(job, index)


def past_directives(job: Job) -> list[DeliveryRef]:
    """Of all attempts except the one that a service may still pick up."""
    return [
        directive_ref(job, index, attempt_no)
        for index in range(len(job.steps))
        for attempt_no in range(1, _last_past(job, index) + 1)
    ]


def _last_past(job: Job, step_index: int) -> int:
    """The newest attempt of a step that no service needs to pick up."""
    step = job.steps[step_index]
    is_wanted = not job.is_terminal and step.status in (StepStatus.DISPATCHING, StepStatus.INITIATED)
    return step.attempt_no - 1 if is_wanted else step.attempt_no
