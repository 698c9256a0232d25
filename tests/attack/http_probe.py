"""What a server makes of a flood: its loop's longest stall, its memory, and how long others wait for an answer.

The flood runs in a process of its own, in the background, so that its work is not mistaken for the server's. As a
program:

    python tests/attack/http_probe.py            every flood, on a `lucius up` of its own
    python tests/attack/http_probe.py NAME …     those
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.attack import background
from tests.attack.http_floods import FLOODS, KEY
from tests.attack.stall_server import forget_stall, longest_stall_ms
from tests.long_form import sized

STALL_SERVER = Path(__file__).with_name("stall_server.py")
HEALTH_SECONDS = 0.05
SUBMIT_SECONDS = 0.025
"""How often the bystander submits, unless its server cannot take that much without a flood."""
STEPS_BACK = sized(5, 19)
"""How much lower the priority of floods is. The full form has the machine to itself: there, floods get only what the
server leaves. In the short form other tests would keep such a flood from ever getting done."""
CALLERS = 8
"""Threads for each kind of call: a call that takes long does not hold up the next one."""
BYSTANDER = "bystander"
BYSTANDER_ADDRESS = "127.0.0.2"
"""Not the flood's: what one address may have is capped, and the bystander is not the flood's colleague."""
BYSTANDER_KEY = "lk_of_the_bystander_0123456789"


class Reading(NamedTuple):
    """What was seen while a flood ran. `failed` counts probes that were not answered as they should be."""

    flood: str
    stall_ms: float
    health_ms_max: float
    submit_ms_p95: float
    submit_ms_max: float
    failed: int
    rss_growth_mib: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.flood:22} stall {self.stall_ms:7.1f} ms   memory {self.rss_growth_mib:+7.1f} MiB"
            f"   health max {self.health_ms_max:8.1f} ms   submit p95 {self.submit_ms_p95:7.1f} ms"
            f" max {self.submit_ms_max:8.1f} ms   failed {self.failed:3}   {self.seconds:5.1f} s"
        )


class Server(NamedTuple):
    url: str
    pid: int
    log: Path
    stall: Path
    submit_seconds: float = SUBMIT_SECONDS


class Caller:
    """A client with one connection, made anew whenever the server drops it."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=timeout, source_address=(BYSTANDER_ADDRESS, 0)
        )

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        for is_last in (False, True):
            try:
                self._connection.request(method, path, body, headers)
                answer = self._connection.getresponse()
                answer.read()
                return answer.status
            except (OSError, http.client.HTTPException):
                self._connection.close()
                if is_last:
                    return 0
        return 0

    def close(self) -> None:
        self._connection.close()

    def health(self) -> bool:
        """Each time on a new connection."""
        self.close()
        return self.call("GET", "/healthz") == 200

    def submit(self) -> bool:
        envelope = {
            "schema_version": "1", "tenant_id": BYSTANDER, "request_type": "OCR", "payload": {"language": "en"},
            "input_ref": f"https://documents.example/{time.monotonic_ns()}.pdf",
            "output_ref": "https://documents.example/out.json",
        }  # fmt: skip
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {BYSTANDER_KEY}"}
        return self.call("POST", "/v1/commands", json.dumps(envelope).encode(), **headers) == 202


class Schedule:
    """Makes the same call at fixed times, however long each takes: latencies count from when a call was due."""

    def __init__(self, url: str, name: str, interval_seconds: float) -> None:
        self._url = url
        self._name = name
        self._interval = interval_seconds
        self._due_at = time.monotonic()
        self._threads = ThreadPoolExecutor(CALLERS)
        self._idle: queue.SimpleQueue[Caller] = queue.SimpleQueue()
        for _ in range(CALLERS):
            self._idle.put(Caller(url))
        self.milliseconds: list[float] = []
        self.failed = 0

    def keep_up(self) -> float:
        """Begin every call that is due by now; when the next one is due."""
        while self._due_at <= time.monotonic():
            self._threads.submit(self._call, self._due_at)
            self._due_at += self._interval
        return self._due_at

    def finish(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get().close()

    def _call(self, due_at: float) -> None:
        caller = self._idle.get()
        try:
            if not getattr(caller, self._name)():
                self.failed += 1
        finally:
            self.milliseconds.append((time.monotonic() - due_at) * 1000)
            self._idle.put(caller)


def rss_mib(pid: int, most: bool = False) -> float:
    """The memory that a process has now, or the most that it had since `forget_peak`."""
    name = "VmHWM" if most else "VmRSS"
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def measure(name: str, server: Server, seconds_min: float = 3.0) -> Reading:
    """Run one flood (or none, if the name is none of theirs) and look at the server meanwhile."""
    url, pid = server.url, server.pid
    forget_peak(pid)
    forget_stall(server.stall)
    rss_before = rss_mib(pid)
    began = time.monotonic()
    flood = background.start(STEPS_BACK, [sys.executable, __file__, "--flood", name, url]) if name in FLOODS else None
    health, submits = Schedule(url, "health", HEALTH_SECONDS), Schedule(url, "submit", server.submit_seconds)
    while (flood is not None and flood.poll() is None) or time.monotonic() - began < seconds_min:
        next_at = min(health.keep_up(), submits.keep_up())
        time.sleep(max(0.0, next_at - time.monotonic()))
    for schedule in (health, submits):
        schedule.finish()
    return Reading(
        flood=name,
        stall_ms=longest_stall_ms(server.stall),
        health_ms_max=max(health.milliseconds),
        submit_ms_p95=statistics.quantiles(submits.milliseconds, n=20)[-1],
        submit_ms_max=max(submits.milliseconds),
        failed=health.failed + submits.failed,
        rss_growth_mib=rss_mib(pid, most=True) - rss_before,
        seconds=time.monotonic() - began,
    )


def bystander_keys(folder: Path) -> str:
    """A file with the key of the tenant that goes on submitting while another floods."""
    path = folder / "keys.yaml"
    digest = sha256(BYSTANDER_KEY.encode()).hexdigest()
    path.write_text(f"- name: {BYSTANDER}\n  sha256: {digest!r}\n  tenants: [{BYSTANDER}]\n  roles: [submit]\n")
    return str(path)


@contextmanager
def started(folder: Path, **environment: str) -> Iterator[Server]:
    """A `lucius up` without services."""
    log, stall = folder / "server.log", folder / "stall"
    stall.write_bytes(bytes(8))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    variables |= {"LUCIUS_API_KEY": KEY, "LUCIUS_MAX_INFLIGHT_PER_TENANT": "100000"}
    variables |= {"LUCIUS_API_KEYS_FILE": bystander_keys(folder), **environment}
    command = [sys.executable, str(STALL_SERVER), str(stall), "up", "--port", "0", "--data", str(folder / "data")]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--no-services"], env=variables, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 60
        while (found := re.search(r"LUCIUS is up at (http://\S+)", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {log.read_text()}")
            time.sleep(0.02)
        yield Server(found[1], process.pid, log, stall)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as server:
        print(measure("nothing", server, 5.0), flush=True)
        for name in names or list(FLOODS):
            said = server.log.stat().st_size
            print(measure(name, server), f"  log {server.log.stat().st_size - said} bytes", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--flood"]:
        asyncio.run(FLOODS[sys.argv[2]](sys.argv[3]))
    else:
        main(sys.argv[1:])
