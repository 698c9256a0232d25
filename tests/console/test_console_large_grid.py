"""A large grid while its batch runs: the first paint, a change, and the memory of the page."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Any

from playwright.sync_api import CDPSession
from tests.console.batch_scenario import Batch
from tests.console.console_browser import OpenTab
from tests.console.console_server import READER, Server
from tests.long_form import IS_LONG, sized

MEMBERS = sized(600, 10_000)
STEPS = 20
WATCHED_SECONDS = sized(3, 600)
PAINT_SECONDS_MAX = sized(4, 1)
CHANGE_SECONDS_MAX = sized(4, 1)
"""The short form shares two cores with other tests."""
HEAP_GROWTH_BYTES_MAX = 8_000_000
ANSWERED_AT_ONCE = 40


class Working(Thread):
    """A worker that goes on answering, a few jobs at a time."""

    def __init__(self, batch: Batch, pause_seconds: float) -> None:
        super().__init__(daemon=True)
        self._batch = batch
        self._pause_seconds = pause_seconds
        self.stop = Event()
        self.answered = 0

    def run(self) -> None:
        while not self.stop.wait(self._pause_seconds):
            body = {"workerId": self._batch.worker, "max": ANSWERED_AT_ONCE, "wait_seconds": 1}
            jobs = self._batch.call("POST", "/v1/worker-jobs:pull", body)["jobs"]
            if jobs:
                self._batch.answer(jobs)
                self.answered += len(jobs)


def heap(debugger: CDPSession) -> int:
    debugger.send("HeapProfiler.collectGarbage")
    found: dict[str, Any] = {one["name"]: one["value"] for one in debugger.send("Performance.getMetrics")["metrics"]}
    return int(found["JSHeapUsedSize"])


def test_a_large_grid_is_painted_quickly_and_followed_without_growing(open_tab: OpenTab, server: Server) -> None:
    names = [f"user-{number:05}@example.org" for number in range(MEMBERS)]
    steps = {f"phase-{phase}": [f"step-{step}" for step in range(5)] for phase in range(STEPS // 5)}
    batch = Batch(server, "large", names, steps, progression="independent", max_parallel=400)
    for _ in steps:
        batch.act("advance")
    tab = open_tab(READER)
    tab.go(f"/batches/{batch.id}")
    tab.page.wait_for_selector("#grid[data-painted-at]")
    painted = float(tab.page.get_attribute("#grid", "data-painted-at") or 0) / 1000
    assert f"{MEMBERS:,} members × {STEPS} steps" in tab.text("#grid-under")
    tab.until_live()

    debugger = tab.page.context.new_cdp_session(tab.page)
    debugger.send("Performance.enable")
    working = Working(batch, 0.2)
    working.start()
    delays, heaps, until = [], [], time.monotonic() + WATCHED_SECONDS
    try:
        while time.monotonic() < until or len(delays) < 3:
            at = int(tab.page.get_attribute("#grid", "data-number") or 0)
            number = batch.call("GET", f"/v1/batches/{batch.id}/grid?since={at}")["number"]
            begun = time.monotonic()
            tab.page.wait_for_function(
                "wanted => Number(document.getElementById('grid').dataset.number) >= wanted", arg=number, polling=20
            )
            delays.append(time.monotonic() - begun)
            heaps.append(heap(debugger))
            tab.page.wait_for_timeout(sized(200, 5_000))
    finally:
        working.stop.set()
        working.join(30)
    figures = (
        f"painted after {painted:.2f} s; changes after {max(delays):.2f} s at most; heap {heaps[0]:,} to {heaps[-1]:,}"
    )
    print(figures)
    assert working.answered > 0
    assert painted < PAINT_SECONDS_MAX, figures
    assert sorted(delays)[int(len(delays) * 0.95)] < CHANGE_SECONDS_MAX, figures
    if IS_LONG:
        settled = heaps[len(heaps) // 5]
        assert max(heaps[len(heaps) // 2 :]) - settled < HEAP_GROWTH_BYTES_MAX, figures
