"""Sixteen threads that decode a `JobStart` at the same moment, run by `test_warm_up.py` as a process of its own."""

from __future__ import annotations

import sys
import threading

import msgspec

from lucius.domain.decide import decide
from lucius.engines.temporal.messages import JobStart
from lucius.roles.running import run
from lucius.settings import Settings
from lucius.testing.samples import ManualClock, accepted

THREADS = 16


async def decode_together() -> None:
    clock = ManualClock()
    job = decide(None, accepted(clock), clock.now(), clock).job
    content = msgspec.json.encode(JobStart(job=job))
    barrier = threading.Barrier(THREADS)

    def decode() -> None:
        barrier.wait()
        assert msgspec.json.decode(content, type=JobStart).job == job

    threads = [threading.Thread(target=decode) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


sys.setswitchinterval(1e-6)
run(decode_together(), Settings())
