"""The simulated orchestrator on a real bus: what it hands out is published, and what is replied is told to it.

The bus is real, with streams under a prefix of this run; the orchestrator's rules and scripts stay those of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import Any

from lucius.contract.exchange import DECIDED
from lucius.contract.orchestrator import Orchestrator
from lucius.contract.shapes import KitUnusable
from lucius.kit.brokers import open_broker
from lucius.kit.bus import LANE_TOPICS, BusFailed, KitBus, Outgoing
from lucius.kit.errors import ServiceUnusable

REPLY_TOPICS = tuple(f"global-bus-replies-p{lane}" for lane in range(len(LANE_TOPICS)))
SUBSCRIPTION = "orchestrator"
WAIT_SECONDS = 0.5
HANDED_MAX = 100
LOCK_SECONDS = 30.0
OPEN_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
KINDS = ("ACK", "HEARTBEAT", "RESULT")


@dataclass(frozen=True)
class BusPlan:
    url: str
    callbacks: str
    """How the service answers: `http` or `bus`."""
    prefix: str

    def environment(self, lock_seconds: float) -> dict[str, str]:
        """What the service is told besides what every service is."""
        return {
            "LUCIUS_PLATFORM_BUS": self.url,
            "LUCIUS_PLATFORM_CALLBACKS": self.callbacks,
            "LUCIUS_PLATFORM_LOCK_SECONDS": f"{lock_seconds:g}",
            "LUCIUS_NATS_PREFIX": self.prefix,
        }


class BusBridge:
    """Runs in a thread of its own from `open` to `close`."""

    def __init__(self, plan: BusPlan, orchestrator: Orchestrator, api_key: str, environ: dict[str, str]) -> None:
        self._plan = plan
        self._orchestrator = orchestrator
        self._key = f"Bearer {api_key}"
        self._environ = environ
        self._stopping = threading.Event()
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._handed: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="contract-bus")

    def open(self) -> None:
        """Returns when the service's subscriptions are there. Raises `KitUnusable`."""
        self._thread.start()
        if not self._opened.wait(OPEN_SECONDS_MAX):
            raise KitUnusable(f"--bus: the bus did not answer in {OPEN_SECONDS_MAX:g} s")
        if self._failure is not None:
            raise KitUnusable(f"--bus: {self._failure}") from self._failure

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        try:
            asyncio.run(self._bridge())
        except BaseException as error:
            self._failure = error
        finally:
            self._opened.set()

    async def _bridge(self) -> None:
        service = self._orchestrator.service
        try:
            async with open_broker(self._plan.url, "--bus", self._environ, makes_streams=True) as bus:
                for topic in LANE_TOPICS:
                    await bus.declare(topic, service, {"service": service})
                for topic in REPLY_TOPICS:
                    await bus.declare(topic, SUBSCRIPTION, {})
                self._opened.set()
                await asyncio.gather(self._hand_out(bus), self._take_replies(bus))
        except ServiceUnusable as error:
            raise KitUnusable(str(error)) from error

    async def _hand_out(self, bus: KitBus) -> None:
        body = {"service": self._orchestrator.service, "max": HANDED_MAX, "wait_seconds": WAIT_SECONDS}
        while not self._stopping.is_set():
            reply = await asyncio.to_thread(self._orchestrator.pull, body, self._key, self._stopping.is_set)
            self._orchestrator.answered(reply, True)
            directives = reply.content.get("directives", [])
            if directives:
                for not_taken in await bus.publish([self._message(one) for one in directives]):
                    if not_taken is not None:
                        raise BusFailed(not_taken.reason)

    def _message(self, directive: dict[str, Any]) -> Outgoing:
        name = f"{directive['jobId']}:{directive['stepId']}:{directive['attempt_no']}"
        times = self._handed[name] = self._handed.get(name, 0) + 1
        return Outgoing(
            # The bus would drop a directive that the orchestrator delivers again, if it had the same id.
            id=name if times == 1 else f"{name}:{times}",
            topic=LANE_TOPICS[directive["lane"]],
            body=json.dumps(directive).encode(),
            properties={"service": directive["service"], "jobId": directive["jobId"]},
        )

    async def _take_replies(self, bus: KitBus) -> None:
        while not self._stopping.is_set():
            try:
                found = await bus.receive(REPLY_TOPICS, SUBSCRIPTION, HANDED_MAX, LOCK_SECONDS, WAIT_SECONDS)
                for one in found:
                    status = self._tell(one.body)
                    if status in DECIDED:
                        await bus.settle([one.ref])
                    else:
                        await bus.dead_letter([one.ref], f"answered {status} over HTTP")
            except BusFailed:
                await asyncio.sleep(WAIT_SECONDS)

    def _tell(self, content: bytes) -> int:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = {}
        fields = body if isinstance(body, dict) else {}
        kind = fields.get("type") if fields.get("type") in KINDS else "ACK"
        reply = self._orchestrator.call_back(str(kind), fields, str(fields.get("callback_token") or ""))
        self._orchestrator.answered(reply, True)
        return reply.status
