"""A run from its first command to its report."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from lucius.load.account import Account
from lucius.load.commands import Commands
from lucius.load.following import Following
from lucius.load.halt import Halt
from lucius.load.plan import Plan
from lucius.load.report import report_of
from lucius.load.services import PlayedServices
from lucius.load.traffic import Traffic
from lucius.load.view import Progress, show
from lucius.load.wire import NoAnswer, Refusal, Wires

INTERRUPTED_DRAIN_SECONDS = 5.0
STOP_SECONDS_MAX = 5.0


async def run(
    plan: Plan, wires: Wires, commands: Commands, service_names: Sequence[str], stream: TextIO
) -> tuple[dict[str, Any], Halt]:
    """The report, and why the run stopped early if it did. `service_names` are played if the plan has a mix."""
    account, halt, services = Account(), Halt(), None
    async with wires:
        if plan.services is not None:
            services = PlayedServices(service_names, plan.services, plan.seed, commands, wires, account, halt)
        following = Following(wires, account, plan.in_flight, commands.tenant_id)
        traffic = Traffic(plan, commands, wires, following, account, halt)
        beside = [show(Progress(plan, account, time.monotonic()), stream), _look_on(following, halt)]
        with _interruptible(halt):
            busy = await _drive(plan, traffic, services, beside, halt)
    played = services.account if services else None
    return report_of(plan, commands.request_type, account, played, halt, traffic.unsent, busy), halt


async def _drive(
    plan: Plan, traffic: Traffic, services: PlayedServices | None, beside: list[Coroutine[Any, Any, None]], halt: Halt
) -> float:
    """How much of one processor this program took for itself."""
    began_at, cpu_from = time.monotonic(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        watching = [tasks.create_task(one) for one in beside]
        serving = tasks.create_task(services.run()) if services is not None else None
        await traffic.submit(tasks)
        gave_up = halt.reason in ("STALLED", "UNREACHABLE")
        await traffic.drain(0.0 if gave_up else plan.drain_seconds, INTERRUPTED_DRAIN_SECONDS)
        busy = (time.process_time() - cpu_from) / max(time.monotonic() - began_at, 0.001)
        for task in watching:
            task.cancel()
        if services is not None and serving is not None:
            services.stop()
            await asyncio.wait({serving}, timeout=0.0 if halt.at_once else STOP_SECONDS_MAX)
            serving.cancel()
    return busy


async def _look_on(following: Following, halt: Halt) -> None:
    try:
        await following.run()
    except (NoAnswer, Refusal) as error:
        halt.fail(error)


@contextmanager
def _interruptible(halt: Halt) -> Iterator[None]:
    """Ctrl-C ends the run with a report; a second one does not wait for anything any more."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, halt.interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
