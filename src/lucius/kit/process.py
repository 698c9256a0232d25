"""Runs a service or worker as a process: logging, signals, exit codes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from lucius.kit.errors import ServiceUnusable

log = logging.getLogger("lucius.kit")

EXIT_UNUSABLE = 2
EXIT_ASKED_TWICE = 130


def run_process(name: str, main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `main` to its end; SIGTERM or SIGINT sets its stop event. Exits the process if it cannot start."""
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # Imported when a service runs, not when its code is imported.
    import uvloop

    _tune_gc()
    try:
        uvloop.run(_until_signal(main))
        say_stopped(name)
    except ServiceUnusable as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(EXIT_UNUSABLE)


def _tune_gc() -> None:
    """Exclude what is loaded now from garbage collection, and collect less often: what an attempt leaves behind has few
    cycles, and at the default thresholds collecting took a tenth of a service's processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def say_stopped(name: str) -> None:
    """The last line of the log. On a terminal it begins a new one, because the terminal has written ^C."""
    if sys.stderr.isatty():
        print(file=sys.stderr)
    log.info("%s: stopped", name)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; the second signal ends the process at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(EXIT_ASKED_TWICE)  # Nothing is lost: stores are crash-safe, and locks expire.
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


def quiet_http_log() -> None:
    """The HTTP client's line for every request would flood the log with long polls."""
    logging.getLogger("httpx").setLevel(logging.WARNING)


async def _until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    await main(stop_on_signals())
