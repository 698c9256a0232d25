"""Waiting for a batch, with something to look at. No wait is without an end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from lucius.cli.failures import TimedOut
from lucius.cli.output import open_console
from lucius.cli.runbook_client import RunbookClient
from lucius.cli.runbook_files import now
from lucius.cli.runbook_progress import ENDED, batch_view
from lucius.cli.runbook_render import event_line

Batch = dict[str, Any]
Events = list[dict[str, Any]]
Show = Callable[[Batch, Events], None]

PATIENCE_SECONDS = 30.0
"""How long a server may be away before a wait ends with an error."""
POLL_SECONDS = 0.5
POLL_SLOW_SECONDS = 2.0
POLL_SLOW_AFTER_SECONDS = 60.0
REDRAWS_PER_SECOND = 4.0
EVENTS_SHOWN = 6
EVENTS_READ = 200


def watch(client: RunbookClient, batch_id: int, timeout_seconds: float) -> Batch:
    """Show the batch until it ends: redrawn in place on a terminal, a line for each event elsewhere."""
    if sys.stdout.isatty():
        return _watch_on_terminal(client, batch_id, timeout_seconds)
    told = EventLines()

    def show(batch: Batch, events: Events) -> None:
        for line in told.of(events):
            click.echo(line)

    return poll(client, batch_id, timeout_seconds, show)


class EventLines:
    """Events as lines, oldest first, each once."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def of(self, events: Events) -> list[str]:
        fresh = [one for one in reversed(events) if one.get("id") not in self._seen]
        self._seen.update(one.get("id") for one in fresh)
        return [event_line(one) for one in fresh]


def _watch_on_terminal(client: RunbookClient, batch_id: int, timeout_seconds: float) -> Batch:
    from rich.live import Live

    latest: tuple[Batch, Events] = (client.batch(batch_id), [])
    console = open_console()

    def show(batch: Batch, events: Events) -> None:
        nonlocal latest
        latest = (batch, events[:EVENTS_SHOWN])

    try:
        with Live(
            console=console,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            get_renderable=lambda: batch_view(latest[0], now(), console.width, latest[1], live=True),
        ):
            return poll(client, batch_id, timeout_seconds, show)
    finally:
        # What stays on the screen is whole, however the watching ended.
        console.print(batch_view(latest[0], now(), console.width))


def poll(client: RunbookClient, batch_id: int, timeout_seconds: float, show: Show | None) -> Batch:
    started = time.monotonic()
    while True:
        batch = client.batch(batch_id, patience_seconds=PATIENCE_SECONDS)
        if show is not None:
            show(batch, client.batch_events(batch_id, EVENTS_READ)["items"])
        elapsed = time.monotonic() - started
        if batch.get("status") in ENDED:
            return batch
        if elapsed >= timeout_seconds:
            raise TimedOut(f"batch {batch_id} is still {batch.get('status')} after {timeout_seconds:g} s; it goes on")
        slow = elapsed > POLL_SLOW_AFTER_SECONDS
        time.sleep(min(POLL_SLOW_SECONDS if slow else POLL_SECONDS, timeout_seconds - elapsed))
