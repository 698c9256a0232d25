"""A run from its first command to its report."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from lucius.client.errors import ClientError
from lucius.load.account import Account
from lucius.load.commands import Commands
from lucius.load.connections import Connections
from lucius.load.following import Following
from lucius.load.halt import Halt
from lucius.load.plan import LoadPlan
from lucius.load.report import report_of
from lucius.load.services import SimulatedServices
from lucius.load.traffic import Traffic
from lucius.load.view import Progress, show

INTERRUPTED_DRAIN_SECONDS = 5.0
STOP_SECONDS_MAX = 5.0


async def run(
    plan: LoadPlan, connections: Connections, commands: Commands, service_names: Sequence[str], stream: TextIO
) -> tuple[dict[str, Any], Halt]:
    """The report, and why the run stopped early, if it did. `service_names` are simulated if the plan has a mix."""
    account, halt, services = Account(), Halt(), None
    async with connections:
        if plan.services is not None:
            services = SimulatedServices(service_names, plan.services, plan.seed, commands, connections, account, halt)
        following = Following(connections, account, plan.in_flight, commands.tenant_id)
        traffic = Traffic(plan, commands, connections, following, account, halt)
        beside = [show(Progress(plan, account, time.monotonic()), stream), _look_on(following, halt)]
        with _interruptible(halt):
            busy = await _drive(plan, traffic, services, beside, halt)
    simulated = services.account if services else None
    return report_of(plan, commands.request_type, account, simulated, halt, traffic.unsent, busy), halt


async def _drive(
    plan: LoadPlan,
    traffic: Traffic,
    services: SimulatedServices | None,
    beside: list[Coroutine[Any, Any, None]],
    halt: Halt,
) -> float:
    """How much of one CPU core this program used."""
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
    except ClientError as error:
        halt.fail(error)


@contextmanager
def _interruptible(halt: Halt) -> Iterator[None]:
    """Ctrl-C ends the run with a report; a second one ends it at once."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, halt.interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
