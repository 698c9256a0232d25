"""Waits for a batch and shows its progress. Every wait has a timeout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.connection import ApiSession
from lucius.cli.failures import TimedOut
from lucius.cli.jobs.watch import AWAY_SECONDS_MAX
from lucius.cli.outage import Note, PatientSession, Say, say_on_stderr
from lucius.cli.output.live import redrawn
from lucius.cli.runbooks.files import now
from lucius.cli.runbooks.progress import batch_view
from lucius.cli.runbooks.render import event_line
from lucius.client.calls import batches as batch_calls
from lucius.client.errors import WaitTimedOut
from lucius.client.statuses import BATCH_ENDED

if TYPE_CHECKING:
    from rich.console import RenderableType

Batch = dict[str, Any]
Events = list[dict[str, Any]]
Show = Callable[[Batch, Events], None]

REDRAWS_PER_SECOND = 4.0
EVENTS_SHOWN = 6
EVENTS_READ = 200


def watch(client: ApiSession, batch_id: int, timeout_seconds: float) -> Batch:
    """Show the batch until it ends: redrawn in place on a terminal, a line for each event elsewhere."""
    if sys.stdout.isatty():
        return _watch_on_terminal(client, batch_id, timeout_seconds)
    lines = EventLines()

    def show(batch: Batch, events: Events) -> None:
        for line in lines.of(events):
            click.echo(line)

    return _poll(client, batch_id, timeout_seconds, show, say_on_stderr)


class EventLines:
    """Events as lines, oldest first, each once."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def of(self, events: Events) -> list[str]:
        new = [event for event in reversed(events) if event.get("id") not in self._seen]
        self._seen.update(event.get("id") for event in new)
        return [event_line(event) for event in new]


def _watch_on_terminal(client: ApiSession, batch_id: int, timeout_seconds: float) -> Batch:
    latest: tuple[Batch, Events] = (client.run(batch_calls.get_batch(batch_id)), [])

    def show(batch: Batch, events: Events) -> None:
        nonlocal latest
        latest = (batch, events[:EVENTS_SHOWN])

    note = Note()

    def view(width: int, live: bool) -> RenderableType:
        shown = batch_view(latest[0], now(), width, latest[1] if live else (), live=live)
        return note.below(shown) if live else shown

    with redrawn(view, REDRAWS_PER_SECOND):
        return _poll(client, batch_id, timeout_seconds, show, note)


def _poll(client: ApiSession, batch_id: int, timeout_seconds: float, show: Show, say: Say) -> Batch:
    patient = PatientSession(client, min(AWAY_SECONDS_MAX, timeout_seconds), f"Batch {batch_id}", say)
    started_at = time.monotonic()
    while True:
        batch = patient.run(lambda: batch_calls.get_batch(batch_id))
        show(batch, patient.run(lambda: batch_calls.events(batch_id, limit=EVENTS_READ))["items"])
        if batch.get("status") in BATCH_ENDED:
            return batch
        elapsed = time.monotonic() - started_at
        try:
            time.sleep(batch_calls.next_look_seconds(batch, batch_id, elapsed, timeout_seconds))
        except WaitTimedOut as error:
            raise TimedOut(error.message) from error
