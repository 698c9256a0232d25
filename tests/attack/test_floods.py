"""Floods against every deployment: the event loop is never blocked for long, memory stays, and others are served.

A stall is processor time of the loop's own thread, so what else the machine does is not counted. Latencies of others
are: their bound is wide, and holds for the full form, which has the machine to itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attack.http_floods import FLOODS
from tests.attack.http_probe import Reading, measure
from tests.attack.neighbours import measure_lists
from tests.attack.targets import DEPLOYMENTS, EMBEDDED, POSTGRES, watched
from tests.long_form import IS_LONG, sized

STALL_MS_MAX = 100.0
MEMORY_MIB_MAX = 100.0
SUBMIT_FACTOR_MAX = 3.0
SUBMIT_MS_FLOOR = 20.0
"""A baseline below this is the machine's noise as much as the server's time."""
SECONDS_MIN = 5.0 if IS_LONG else 1.0
SHORT = ("oversized_batch", "giant_header", "half_sent_bodies")
NAMES = tuple(FLOODS) if IS_LONG else SHORT
TARGETS = DEPLOYMENTS if IS_LONG else (EMBEDDED,)
LATENCY_TARGETS = (EMBEDDED, POSTGRES)
"""With Temporal, its server and its workers share the machine with the flood and take most of it: what others wait for
is the machine. It is printed."""


@pytest.mark.parametrize("deployment", TARGETS)
def test_floods_stall_nobody(deployment: str, tmp_path: Path, postgres_url: str) -> None:
    wrong: list[str] = []
    with watched(deployment, tmp_path, postgres_url) as servers:
        print(f"\n{deployment}")
        for name in NAMES:
            # Anew before each: a server with more jobs is slower, flood or not.
            quiet = measure("nothing", servers[0], SECONDS_MIN)
            reading = measure(name, servers[0], SECONDS_MIN)
            print(f"{quiet}\n{reading}")
            wrong += [f"{name}: {fault}" for fault in _faults(reading)]
            if IS_LONG and deployment in LATENCY_TARGETS:
                wrong += [f"{name}: {fault}" for fault in _slow_submits(reading, quiet)]
    assert not wrong, "\n".join(wrong)


def _faults(reading: Reading) -> list[str]:
    faults = []
    if reading.stall_ms > STALL_MS_MAX:
        faults.append(f"the loop was blocked for {reading.stall_ms:.0f} ms")
    if reading.rss_growth_mib > MEMORY_MIB_MAX:
        faults.append(f"memory grew by {reading.rss_growth_mib:.0f} MiB")
    if reading.failed:
        faults.append(f"{reading.failed} calls of others failed")
    return faults


def _slow_submits(reading: Reading, quiet: Reading) -> list[str]:
    allowed_ms = SUBMIT_FACTOR_MAX * max(quiet.submit_ms_p95, SUBMIT_MS_FLOOR)
    if reading.submit_ms_p95 <= allowed_ms:
        return []
    return [f"another tenant's submit took {reading.submit_ms_p95:.0f} ms (p95), {allowed_ms:.0f} are allowed"]


def test_lists_of_one_tenant_leave_another_its_speed(tmp_path: Path) -> None:
    figures = measure_lists(tmp_path, sized(5_000, 200_000), sized(20, 100))
    print(f"\n{figures}")
    assert set(figures.lists) <= {"200", "429"}
    allowed_ms = SUBMIT_FACTOR_MAX * max(figures.quiet.submit_p95, SUBMIT_MS_FLOOR)
    if IS_LONG:
        assert figures.flooded.submit_p95 <= allowed_ms
    assert figures.flooded.completion_p50 <= sized(1_000, 500)
