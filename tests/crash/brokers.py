"""Brokers that the crash tests run LUCIUS over, with the moves of a process, so that the same fire can be laid to them.

NATS is killed. The Service Bus test server has its messages in memory and is not: it drops every connection and takes
none for a while.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.nats_server import NatsServer
from tests.servicebus_process import ServiceBusProcess, servicebus_process

_NEVER_RETRIEVED = "Task exception was never retrieved"
_PACKAGES = re.compile(r'File "[^"]*/(?:src|site-packages)/(azure|lucius)/')


class NatsBroker:
    port = None

    def __init__(self, server: NatsServer) -> None:
        self.lives = 1
        self.settings = {"LUCIUS_BUS": server.url}
        self.kit_url = server.url
        self.address_port = server.port
        self._server = server

    def start(self) -> None:
        self.lives += 1
        self._server.start()

    def wait_ready(self) -> None:
        """It has started only when it answers."""

    def kill(self) -> None:
        self._server.kill()

    @staticmethod
    def tracebacks(log: str) -> list[str]:
        """Lines of a role's log that have one."""
        return [line for line in log.splitlines() if "Traceback" in line]


class ServiceBusBroker:
    port = None
    kit_url = "servicebus://"

    def __init__(self, process: ServiceBusProcess) -> None:
        self.lives = 1
        self.settings = process.settings
        self.address_port = process.port or 0
        self._process = process

    def start(self) -> None:
        self.lives += 1
        self._process.end_outage()

    def wait_ready(self) -> None:
        """It has started only when it answers."""

    def kill(self) -> None:
        self._process.begin_outage()

    @staticmethod
    def tracebacks(log: str) -> list[str]:
        """Azure's SDK starts tasks that it does not wait for; they fail when a connection breaks, and asyncio tells.
        Just those are passed over: of asyncio, with no frame of LUCIUS and with one of Azure's."""
        return [line for line in log.splitlines() if "Traceback" in line and not _is_left_by_sdk(line)]


def _is_left_by_sdk(line: str) -> bool:
    try:
        said = json.loads(line)
    except ValueError:
        return False
    is_of_asyncio = said.get("logger") == "asyncio" and str(said.get("message")).startswith(_NEVER_RETRIEVED)
    return is_of_asyncio and set(_PACKAGES.findall(said.get("error", ""))) == {"azure"}


@contextmanager
def open_broker(
    name: str, folder: Path, settings: Mapping[str, str], workers: Sequence[str] = ()
) -> Iterator[NatsBroker | ServiceBusBroker]:
    """`nats` or `servicebus`, for LUCIUS with these settings and these function workers."""
    if name == "servicebus":
        with servicebus_process(folder / "servicebus", settings, workers) as process:
            yield ServiceBusBroker(process)
        return
    server = NatsServer()
    server.start()
    try:
        yield NatsBroker(server)
    finally:
        server.stop()
