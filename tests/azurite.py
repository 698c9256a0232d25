"""Azurite from npm: Azure's emulator of Blob and Table Storage, in memory, on free ports."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import node_packages
from tests.nats_server import free_port

PACKAGES = {"azurite": "3.35.0"}
ACCOUNT = "devstoreaccount1"
# The key that every Azurite has; it is public.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_SECONDS = 30.0


class Azurite(NamedTuple):
    blob_port: int
    table_port: int

    @property
    def connection(self) -> str:
        """The connection string of Blob and Tables."""
        blob = f"BlobEndpoint=http://127.0.0.1:{self.blob_port}/{ACCOUNT};"
        table = f"TableEndpoint=http://127.0.0.1:{self.table_port}/{ACCOUNT};"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};{blob}{table}"


def install(cache: Path) -> Path:
    """The program, for Node."""
    return node_packages.install(cache, PACKAGES) / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"


@contextmanager
def running(cache: Path, *more: str) -> Iterator[Azurite]:
    """`more` options of Azurite."""
    program = install(cache)
    ports = Azurite(free_port(), free_port())
    with tempfile.TemporaryDirectory(prefix="lucius-azurite-") as folder:
        log = Path(folder) / "log"
        options = [*more, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        options += ["--blobPort", str(ports.blob_port), "--tablePort", str(ports.table_port), "--queuePort", "0"]
        with log.open("wb") as output:
            server = subprocess.Popen(
                [node_packages.node_program(), program, *options], cwd=folder, stdout=output, stderr=output
            )
        try:
            for port in ports:
                _wait_until_open(port, server, log)
            yield ports
        finally:
            server.kill()
            server.wait()


def _wait_until_open(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"Azurite does not listen on {port}:\n{log.read_text()}"
            time.sleep(0.05)
