"""Callbacks over the bus: services publish them to the reply topic of their lane, with the token in the body.

A batch of replies is one turn, like a batch over HTTP, and goes through the same use case. A reply is settled after its
outcome is durable, whatever the outcome. If the process dies in between, the reply is delivered again and answered as
a duplicate. See `docs/decisions/0039-replies-over-the-bus.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

from lucius.domain.errors import CallerError, InfrastructureError, WorkerError
from lucius.domain.inputs import Acked
from lucius.domain.routing import REPLY_TOPICS
from lucius.ports.bus import Bus, Delivery, DeliveryRef, Subscription
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.ports.readiness import NotReady
from lucius.usecases.callback_bodies import read_any_callback, single_bytes_max
from lucius.usecases.complete import Completion, PendingCallback

SUBSCRIPTION = "orchestrator"
BATCH_MAX = 256
LOCK_SECONDS = 60.0
WAIT_SECONDS = 20.0
RETRY_SECONDS = 1.0
DELIVERIES_MAX = 1_000
"""Many: a reply is delivered again whenever the ledger is out of reach, and must not die of that."""
DEFECTS_MAX = 10
"""Deliveries after which a reply that fails because of a defect is a dead letter."""
REASON_CHARS_MAX = 500
SERVICE_CHARS_MAX = 128
STOP_SECONDS = 5.0
LOOP = "replies"


def reply_subscriptions() -> list[Subscription]:
    # Dead letters are without their body, which contains a token.
    return [Subscription(topic=topic, name=SUBSCRIPTION, delivery_max=DELIVERIES_MAX) for topic in REPLY_TOPICS]


class Replies:
    """Takes replies while it is entered. Several processes may."""

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        completion: Completion,
        observer: Observer,
        artifacts_bytes_max: int,
        saw: Callable[[str, str], None] = lambda service, instance: None,
    ) -> None:
        """`saw` is told which instance of which service has acknowledged a directive."""
        self._bus = bus
        self._ledger = ledger
        self._completion = completion
        self._observer = observer
        self._saw = saw
        self._bytes_max = single_bytes_max(artifacts_bytes_max)
        self._is_ledger_away = False
        self._problem: str | None = None
        self._taking: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Replies:
        await self._bus.declare(reply_subscriptions())
        self._task = asyncio.create_task(self._forever(), name=LOOP)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._taking is not None:
            # What was applied should be settled as well; otherwise it is delivered once more.
            await asyncio.wait([self._taking], timeout=STOP_SECONDS)

    async def health(self) -> str:
        if self._problem is not None:
            raise NotReady(self._problem)
        return f"taken from {len(REPLY_TOPICS)} topics"

    async def _forever(self) -> None:
        while True:
            try:
                await self._round()
            except Exception as error:
                self._problem = str(error) or type(error).__name__
                self._observer.loop_failed(LOOP, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._problem = None
                self._observer.loop_worked(LOOP)

    async def _round(self) -> None:
        if self._is_ledger_away:
            # Receiving would only add deliveries to replies that cannot be applied yet.
            await self._ledger.health()
            self._is_ledger_away = False
        deliveries = await self._bus.receive(REPLY_TOPICS, SUBSCRIPTION, BATCH_MAX, LOCK_SECONDS, WAIT_SECONDS)
        if deliveries:
            self._taking = asyncio.ensure_future(self.take(deliveries))
            await asyncio.shield(self._taking)

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        """Apply replies and settle them. Raises `InfrastructureError` if some could not be applied; these are
        deliverable again."""
        begun = [self._begin(delivery) for delivery in deliveries]
        done: list[DeliveryRef] = []
        dead: dict[str, list[DeliveryRef]] = {}
        again: list[DeliveryRef] = []
        away: InfrastructureError | None = None
        for delivery, one in zip(deliveries, begun, strict=True):
            try:
                if isinstance(one, Exception):
                    raise one
                await self._completion.conclude(one)
                done.append(delivery.ref)
                self._note(delivery, one)
            except WorkerError:
                done.append(delivery.ref)
            except CallerError as error:
                dead.setdefault(self._refused(error), []).append(delivery.ref)
            except InfrastructureError as error:
                away = error
                again.append(delivery.ref)
            except Exception as error:
                self._observer.failed("a reply on the bus", error)
                if delivery.delivery_count < DEFECTS_MAX:
                    again.append(delivery.ref)
                else:
                    dead.setdefault(f"INTERNAL: {type(error).__name__}", []).append(delivery.ref)
        if done:
            await self._bus.settle(done)
        for reason, refs in dead.items():
            await self._bus.dead_letter(refs, reason)
        if again:
            await self._bus.abandon(again, RETRY_SECONDS)
        if away is not None:
            self._is_ledger_away = True
            raise away

    def _begin(self, delivery: Delivery) -> PendingCallback | Exception:
        try:
            if len(delivery.body) > self._bytes_max:
                detail = f"the reply has {len(delivery.body)} bytes, more than {self._bytes_max}"
                raise CallerError.of("BODY_TOO_LARGE", detail)
            body = read_any_callback(delivery.body)
            return self._completion.begin(body, body.callback_token)
        except Exception as error:
            return error

    def _note(self, delivery: Delivery, pending: PendingCallback) -> None:
        service = delivery.properties.get("service")
        if isinstance(pending.fact, Acked) and pending.fact.acked_by and isinstance(service, str):
            self._saw(service[:SERVICE_CHARS_MAX], pending.fact.acked_by)

    def _refused(self, error: CallerError) -> str:
        self._observer.reply_refused(error.code)
        fault = error.faults[0]
        where = f" ({fault.pointer})" if fault.pointer else ""
        return f"{error.code}: {error.detail}{where}"[:REASON_CHARS_MAX]
