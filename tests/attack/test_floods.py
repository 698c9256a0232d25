"""Floods against every deployment: the event loop is never blocked for long, memory stays, and others are served.

A stall is processor time of the loop's own thread, so what else the machine does is not counted. Latencies of others
are, so they are compared with those of the same minute without a flood, and floods run in the background
(`background.py`). What remains is the noise of a machine that does something else in one half of the comparison: where
the bound does not hold, both halves are measured again, at most twice. A server that is too slow is so three times.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attack.http_floods import FLOODS
from tests.attack.http_probe import Reading, Server, measure
from tests.attack.neighbours import Figures, measure_lists
from tests.attack.targets import DEPLOYMENTS, EMBEDDED, watched
from tests.long_form import IS_LONG, sized

STALL_MS_MAX = 100.0
MEMORY_MIB_MAX = 100.0
SUBMIT_FACTOR_MAX = 3.0
SUBMIT_MS_FLOOR = sized(100, 10)
"""A baseline below this is the machine's noise as much as the server's time. The short form shares the machine with
three other tests: it notices a server that makes others wait for its flood, and not by how much."""
TRIES = 3
SECONDS_MIN = 5.0 if IS_LONG else 1.0
SHORT = ("oversized_batch", "giant_header", "half_sent_bodies")
NAMES = tuple(FLOODS) if IS_LONG else SHORT
TARGETS = DEPLOYMENTS if IS_LONG else (EMBEDDED,)


@pytest.mark.parametrize("deployment", TARGETS)
def test_floods_stall_nobody(deployment: str, tmp_path: Path, postgres_url: str) -> None:
    with watched(deployment, tmp_path, postgres_url) as servers:
        print(f"\n{deployment}")
        measure("nothing", servers[0], SECONDS_MIN)  # The first calls are slower, flood or not.
        wrong = [f"{name}: {fault}" for name in NAMES for fault in _flooded(name, servers[0])]
    assert not wrong, "\n".join(wrong)


def _flooded(name: str, server: Server) -> list[str]:
    """What is wrong while this flood runs. Only what others wait for is measured again."""
    faults: list[str] = []
    slow: list[str] = []
    for _ in range(TRIES):
        # Anew before each: a server with more jobs is slower, flood or not.
        quiet = measure("nothing", server, SECONDS_MIN)
        reading = measure(name, server, SECONDS_MIN)
        print(f"{quiet}\n{reading}")
        faults += _faults(reading)
        slow = _slow_submits(reading.submit_ms_p95, quiet.submit_ms_p95)
        if not slow:
            break
    return faults + slow


def _faults(reading: Reading) -> list[str]:
    faults = []
    if reading.stall_ms > STALL_MS_MAX:
        faults.append(f"the loop was blocked for {reading.stall_ms:.0f} ms")
    if reading.rss_growth_mib > MEMORY_MIB_MAX:
        faults.append(f"memory grew by {reading.rss_growth_mib:.0f} MiB")
    if reading.failed:
        faults.append(f"{reading.failed} calls of others failed")
    return faults


def _slow_submits(flooded_ms: float, quiet_ms: float) -> list[str]:
    allowed_ms = SUBMIT_FACTOR_MAX * max(quiet_ms, SUBMIT_MS_FLOOR)
    if flooded_ms <= allowed_ms:
        return []
    return [f"another tenant's submit took {flooded_ms:.0f} ms (p95), {allowed_ms:.0f} are allowed"]


def test_lists_of_one_tenant_leave_another_its_speed(tmp_path: Path) -> None:
    completion_ms_max = sized(1_000, 500)

    def is_quick(figures: Figures) -> bool:
        is_slow = _slow_submits(figures.flooded.submit_p95, figures.quiet.submit_p95)
        return not is_slow and figures.flooded.completion_p50 <= completion_ms_max

    figures = measure_lists(tmp_path, sized(5_000, 200_000), sized(20, 100), TRIES, is_quick)
    assert set(figures.lists) <= {"200", "429"}
    assert not _slow_submits(figures.flooded.submit_p95, figures.quiet.submit_p95)
    assert figures.flooded.completion_p50 <= completion_ms_max
