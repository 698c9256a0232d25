"""A real NATS server for tests: JetStream, every write synced, on free ports, killed and started again at will."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lucius.buses.nats.bus import NatsBus
from lucius.buses.nats.connection import Connection
from lucius.buses.nats.jetstream import JetStream, all_of
from lucius.buses.nats.names import Names
from lucius.buses.nats.options import NatsOptions

START_SECONDS = 15.0
MEMORY_FOLDER = Path("/dev/shm")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def forget_streams(options: NatsOptions) -> None:
    """Delete what a test has left on a server that others use."""
    await _each_stream(options, "STREAM.DELETE")


async def empty_streams(options: NatsOptions) -> None:
    """Leave streams, consumers and subscriptions to the next test, and no message."""
    await _each_stream(options, "STREAM.PURGE", besides=Names(options.prefix).subscriptions)


async def _each_stream(options: NatsOptions, call: str, besides: str = "") -> None:
    connection = Connection(options)
    await connection.open()
    try:
        jetstream = JetStream(connection)
        names = await jetstream.stream_names(Names(options.prefix).everything())
        await all_of([jetstream.call(f"{call}.{name}") for name in names if name != besides])
    finally:
        await connection.close()


async def delete_topic(bus: NatsBus, topic: str) -> None:
    await bus.jetstream.call(f"STREAM.DELETE.{Names(bus.options.prefix).topic(topic)}")


class NatsServer:
    """`extra`: more lines of its configuration. `sync`: the `sync_interval`. `store_max`: how much all streams may
    hold."""

    def __init__(self, extra: str = "", sync: str = "always", store_max: str = "1TB") -> None:
        # A folder in memory outlives the killed server just as well, and syncing costs nothing there.
        parent = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
        self._folder = Path(tempfile.mkdtemp(prefix="lucius-nats-", dir=parent))
        self.port, self.monitor_port = free_port(), free_port()
        self._config = self._folder / "nats.conf"
        self._sync = sync
        self._store_max = store_max
        self._process: subprocess.Popen[bytes] | None = None
        self.configure(extra)

    def configure(self, extra: str) -> None:
        """For the next start."""
        self._config.write_text(
            f"listen: 127.0.0.1:{self.port}\nhttp: 127.0.0.1:{self.monitor_port}\n"
            f'jetstream {{ store_dir: "{self._folder / "store"}", sync_interval: {self._sync},'
            f" max_file_store: {self._store_max} }}\n{extra}\n"
        )

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    def start(self) -> None:
        program = Path(sys.executable).with_name("nats-server")
        log = self._folder / "server.log"
        self._process = subprocess.Popen([program, "-c", self._config, "-l", log], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"the NATS server did not start in {START_SECONDS:g} s"
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                return client.recv(4) == b"INFO"
        except OSError:
            return False

    def kill(self) -> None:
        """As a failing machine ends it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(10)
            self._process = None
