"""The display of a running load test: redrawn in place on a terminal, otherwise a line every two seconds."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from lucius.load.account import Account
from lucius.load.plan import LoadPlan
from lucius.load.report import counts_text

if TYPE_CHECKING:
    from rich.console import RenderableType

LINE_SECONDS = 2.0
REDRAW_SECONDS = 0.25
NOW_SECONDS = 5.0
BAR_CELLS = 40


class Progress:
    """The progress of a run, computed from the account and the time."""

    def __init__(self, plan: LoadPlan, account: Account, started_at: float) -> None:
        self._plan = plan
        self._account = account
        self._started_at = started_at
        self._seen: deque[tuple[float, int]] = deque([(started_at, 0)])

    def done(self, now: float) -> float:
        """From 0 to 1: by jobs, or by time if that limit is nearer."""
        jobs = self._account.ended_total / self._plan.jobs_max
        if self._plan.seconds is None:
            return jobs
        return min(1.0, max(jobs, (now - self._started_at) / self._plan.seconds))

    def rate_now(self, now: float) -> float:
        """Jobs ended per second, over the last five seconds."""
        self._seen.append((now, self._account.ended_total))
        while len(self._seen) > 2 and now - self._seen[0][0] > NOW_SECONDS:
            self._seen.popleft()
        (since, before), (until, after) = self._seen[0], self._seen[-1]
        return (after - before) / (until - since) if until > since else 0.0

    def facts(self, now: float) -> list[tuple[str, str]]:
        account, elapsed = self._account, now - self._started_at
        average = account.ended_total / elapsed if elapsed > 0 else 0.0
        p50, p95 = (account.whole.percentile(percent) for percent in (50, 95))
        facts = [
            ("elapsed", f"{elapsed:.0f} s"),
            ("submitted", f"{account.submitted:,}"),
            ("in flight", f"{account.in_flight:,}"),
            ("ended", counts_text(account.ended)),
            ("jobs/s", f"{self.rate_now(now):.0f} now, {average:.0f} on average"),
            (
                "latency",
                "none yet" if p50 is None or p95 is None else f"p50 {p50 * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms",
            ),
        ]
        return [*facts, ("refused", counts_text(account.refused))] if account.refused else facts

    def line(self, now: float) -> str:
        return "; ".join(f"{name} {value}" for name, value in self.facts(now))

    def panel(self, now: float) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        full = round(self.done(now) * BAR_CELLS)
        bar = Text("━" * full, style="cyan").append("━" * (BAR_CELLS - full), style="grey37")
        grid = Table.grid(padding=(0, 2))
        grid.add_row("", bar.append(f" {self.done(now):.0%}"))
        for name, value in self.facts(now):
            style = "yellow" if name == "refused" else ""
            grid.add_row(Text(name, style="dim"), Text(value, style=style))
        return grid


async def show(progress: Progress, stream: TextIO) -> None:
    """Until cancelled."""
    with _showing(progress, stream) as (draw, every_seconds):
        while True:
            await asyncio.sleep(every_seconds)
            draw()


@contextmanager
def _showing(progress: Progress, stream: TextIO) -> Iterator[tuple[Callable[[], None], float]]:
    if not stream.isatty():
        yield lambda: print(progress.line(time.monotonic()), file=stream, flush=True), LINE_SECONDS
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False)
    with Live(progress.panel(time.monotonic()), console=console, auto_refresh=False, transient=True) as live:
        yield lambda: live.update(progress.panel(time.monotonic()), refresh=True), REDRAW_SECONDS
