"""Temporal's development server on a db file, as a process that can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.crash.processes import free_port
from tests.engines.temporal_server import temporal_program

START_SECONDS_MAX = 60.0
END_SECONDS_MAX = 10.0


class TemporalServer:
    """Has the moves of `tests.crash.processes.Process`, so that the same fire can be laid to it."""

    port = None

    def __init__(self, folder: Path, *options: str) -> None:
        self.frontend_port = free_port()
        self.address = f"127.0.0.1:{self.frontend_port}"
        self.lives = 0
        self._log = folder / "temporal.log"
        self._command = [
            temporal_program(), "server", "start-dev", "--headless", "--ip", "127.0.0.1",
            "--port", str(self.frontend_port), "--db-filename", str(folder / "temporal.db"),
            "--log-level", "error", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TemporalServer:
        self.start()
        self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        self.lives += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process is not None
            assert self._process.poll() is None, f"Temporal ended by itself:\n{self.log[-3000:]}"
            assert time.monotonic() < end, f"Temporal is not ready:\n{self.log[-3000:]}"
            try:
                socket.create_connection(("127.0.0.1", self.frontend_port), 1.0).close()
            except OSError:
                time.sleep(0.05)
                continue
            return

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS_MAX)
