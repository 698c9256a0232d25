"""Signals of a test server that runs as a process: SIGUSR1 begins an outage, SIGUSR2 ends it, others end the server."""

from __future__ import annotations

import asyncio
import signal
from typing import Protocol

import click


class Stoppable(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class OutageSignals:
    """Catches signals from the moment it is made."""

    def __init__(self) -> None:
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            asyncio.get_running_loop().add_signal_handler(number, self._signals.put_nowait, number)

    async def until_stopped(self, server: Stoppable, kept: str) -> None:
        """`kept`: what outlasts an outage."""
        while (number := await self._signals.get()) in (signal.SIGUSR1, signal.SIGUSR2):
            if number is signal.SIGUSR1:
                await server.stop()
                click.echo(f"An outage: no connection is taken until SIGUSR2. {kept} are kept.", err=True)
            else:
                await server.start()
                click.echo("The outage is over.", err=True)
