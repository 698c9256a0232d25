"""LUCIUS as its users run it: processes of their own, ended by their pid whatever happens.

Everything listens on loopback, on ports that this test run has taken for itself.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

LUCIUS = Path(sys.executable).parent / "lucius"
API_KEY = "lk_a_key_of_the_crash_tests"
CALLBACK_KEYS = "k1:a-secret-that-all-processes-share"
START_SECONDS_MAX = 60.0
END_SECONDS_MAX = 10.0

QUICK = {
    "LUCIUS_ACK_TIMEOUT_SECONDS": "1.5",
    "LUCIUS_LEASE_SECONDS": "1.5",
    "LUCIUS_MAX_STEP_SECONDS": "30",
    "LUCIUS_JOB_DEADLINE_SECONDS": "600",
    "LUCIUS_MAX_ATTEMPTS": "12",
    "LUCIUS_DISPATCH_BACKOFF_SECONDS": "0.05",
    "LUCIUS_ACK_BACKOFF_SECONDS": "0.05",
    "LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.05",
    "LUCIUS_SWEEP_INTERVAL": "0.1",
    "LUCIUS_OUTBOX_RETRY_INTERVAL": "0.2",
    "LUCIUS_LOG_LEVEL": "WARNING",
}
"""Policies short enough to see every timeout come round in a test."""


PORTS = range(20_000, 32_768)
"""Below those that systems give to outgoing connections, of which tests make many: a port that was free a moment ago
would too often be taken when its server starts."""


def free_port() -> int:
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's own, without its LUCIUS settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    return {**kept, "LUCIUS_API_KEY": API_KEY, **extra}


def run_lucius(*words: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that comes to an end by itself."""
    return subprocess.run(
        [LUCIUS, *words], env=environment(settings), capture_output=True, text=True, timeout=START_SECONDS_MAX
    )


class Process:
    """One role, which can be killed and started again; in a `with` block it is gone at the end."""

    def __init__(
        self,
        *words: str,
        settings: Mapping[str, str],
        folder: Path,
        port: int | None = None,
        program: Sequence[str | Path] = (LUCIUS,),
    ) -> None:
        self._program = program
        self.words = words if port is None else (*words, "--port", str(port))
        self.port = port
        self.lives = 0
        self._environment = environment(settings)
        self._folder = folder
        self.log_file = folder / f"{words[0]}-{port or 'alone'}.log"
        self._said_before = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Process:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.words} does not run"
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def start(self) -> None:
        assert self._process is None, f"{self.words} runs already"
        self.lives += 1
        with self.log_file.open("ab") as log:
            self._said_before = len(self.log)
            self._process = subprocess.Popen(
                [*self._program, *self.words], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_ready(self) -> bool:
        """Whether it answers; one that ended instead of starting is an error."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.words} ended by itself:\n{self.log[-3000:]}"
        said = self.log[self._said_before :]
        if self.port is None:
            return "is running" in said
        if "  management  " not in said:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def wait_ready(self) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while not self.is_ready():
            assert time.monotonic() < end, f"{self.words} is not ready:\n{self.log[-3000:]}"
            time.sleep(0.02)

    def kill(self) -> None:
        """`kill -9`, and nothing left of it when this returns."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS_MAX)

    def terminate(self) -> float:
        """Ask it to stop, and say how long that took; it must end well, and in time."""
        assert self._process is not None
        began = time.monotonic()
        os.kill(self._process.pid, signal.SIGTERM)
        status = self._process.wait(3 * END_SECONDS_MAX)
        self._process = None
        assert status == 0, f"{self.words} ended with {status}:\n{self.log[-3000:]}"
        return time.monotonic() - began
