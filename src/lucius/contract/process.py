"""The service as a process in its own group, so that none of its children outlive the kit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lucius.contract.shapes import KitUnusable

KILL_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.02
LOG_TAIL_BYTES = 16_384
LOG_TAIL_LINES = 12


class ServiceProcess:
    def __init__(self, command: Sequence[str], environ: dict[str, str], log: Path) -> None:
        self._command = list(command)
        self._environ = environ
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._case_starts_at = 0

    def start(self) -> None:
        if self.is_running():
            return
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the command is what the user wants tested
                    self._command,
                    env={**os.environ, **self._environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                reason = error.strerror or str(error)
                raise KitUnusable(f"the service cannot be started: {self._command[0]}: {reason}") from error

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def terminate(self) -> None:
        """SIGTERM to the process itself, as a container runtime does."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, seconds_max: float) -> int | None:
        """The exit code, or `None` if the process still runs after that time."""
        deadline = time.monotonic() + seconds_max
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return self.exit_code

    def kill(self) -> None:
        """SIGKILL to the process and its children."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(KILL_SECONDS_MAX)

    def begin_case(self) -> None:
        self._case_starts_at = self._log.stat().st_size if self._log.exists() else 0

    def last_lines(self) -> list[str]:
        """The last lines that the service wrote since the case began, without terminal control characters."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(max(self._case_starts_at, self._log.stat().st_size - LOG_TAIL_BYTES))
            lines = log.read(LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
            return ["".join(letter if letter.isprintable() else " " for letter in line) for line in lines]
