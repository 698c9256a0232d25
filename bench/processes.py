"""Processes that the benchmark starts: each bounded in time, ended by its own id, and read from /proc while it runs."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
API_KEY = secrets.token_urlsafe(24)
SERVER_SETTINGS = {"LUCIUS_API_KEY": API_KEY, "LUCIUS_MAX_INFLIGHT_PER_TENANT": "10000"}


class BenchError(Exception):
    """The benchmark cannot go on; the text is for whoever started it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(settings: Mapping[str, str] = {}) -> dict[str, str]:
    """Nothing of the caller's own LUCIUS settings gets in."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    return inherited | {"BENCH_API_KEY": API_KEY} | dict(settings)


class Process:
    """A child with its output in a file: started on entering, ended on leaving."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        output: Path,
        settings: Mapping[str, str] = {},
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.output = output
        self._command = list(command)
        self._settings = settings
        self._stop_signal = stop_signal
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.output.open("wb") as output:
            self._child = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=environment(self._settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    def wait(self, seconds: float) -> None:
        """For a child that ends by itself; one that does not is ended on leaving."""
        with suppress(subprocess.TimeoutExpired):
            self._running().wait(seconds)

    def stop(self) -> int:
        child = self._running()
        if child.poll() is None:
            child.send_signal(self._stop_signal)
        try:
            return child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def wait_ready(self, port: int, path: str) -> None:
        until = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < until:
            if self._running().poll() is not None:
                raise BenchError(f"{self.name} ended before it was ready:\n{self.tail()}")
            if answers(port, path):
                return
            time.sleep(0.05)
        raise BenchError(f"{self.name} was not ready after {READY_SECONDS_MAX:.0f} s:\n{self.tail()}")

    def require_running(self) -> None:
        if self._running().poll() is not None:
            raise BenchError(f"{self.name} has ended:\n{self.tail()}")

    def tail(self) -> str:
        return self.output.read_text(errors="replace")[-2000:]

    def cpu_seconds(self) -> float:
        return self._cpu_seconds("stat")

    def main_thread_cpu_seconds(self) -> float:
        """Of the thread that runs the event loop."""
        return self._cpu_seconds(f"task/{self.pid}/stat")

    def _cpu_seconds(self, stat: str) -> float:
        fields = self._proc(stat).rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_peak_mb(self) -> float:
        """The most that ever was resident (VmHWM), in 10⁶ bytes."""
        line = next(line for line in self._proc("status").splitlines() if line.startswith("VmHWM"))
        return round(int(line.split()[1]) * 1024 / 1e6, 1)

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise BenchError(f"{self.name} was not started")
        return self._child


def tree_cpu_seconds(root: int) -> float:
    """Processor time of a process and of all its descendants, those that it has waited for included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # It has ended meanwhile.
            continue
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    wanted = {root}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(ticks.get(pid, 0) for pid in wanted) / os.sysconf("SC_CLK_TCK")


def answers(port: int, path: str) -> bool:
    """Whether anything but a server's error comes back: an empty route answers a GET with 405."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


def python_module(module: str, *options: str) -> list[str]:
    return [sys.executable, "-m", module, *options]


def run_module(module: str, *options: str, seconds_max: float) -> bytes:
    """The last line that a child of limited life prints."""
    try:
        done = subprocess.run(
            python_module(module, *options),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{module} {' '.join(options)} took longer than {seconds_max:.0f} s") from error
    if done.returncode != 0:
        raise BenchError(f"{module} {' '.join(options)} failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout.strip().rpartition(b"\n")[2]


@contextmanager
def scratch_folder(name: str, parent: Path) -> Iterator[Path]:
    """On the disk that is measured, and gone afterwards."""
    folder = parent / f"{name}-{secrets.token_hex(4)}.tmp"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
