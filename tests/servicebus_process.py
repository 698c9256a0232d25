"""The Service Bus test server as a process of its own, with the topics of an installation.

It keeps its messages in memory, so it is not killed: its outage drops every connection and takes none.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.crash.processes import START_SECONDS_MAX, Process, free_port, run_lucius

LOCK = "PT5S"
"""The shortest lock of Service Bus: what a killed process had in its hands is another's after this time."""

DELIVERIES_MAX = 100
"""A killed process uses up a delivery of everything that it had read ahead, and these tests kill every second."""


class ServiceBusProcess(Process):
    def __init__(self, folder: Path, config: Path) -> None:
        words = ("--config", str(config), "--administration-port", "0", "--ca-folder", str(folder))
        super().__init__("servicebus-emulator", *words, settings={}, folder=folder, port=free_port())
        self._ca_folder = folder

    @property
    def settings(self) -> dict[str, str]:
        """With which LUCIUS reaches it."""
        connection = re.findall(r"^Endpoint=\S+$", self.log, re.MULTILINE)[-1]
        port = re.findall(r"^Administration API on https://127\.0\.0\.1:(\d+)", self.log, re.MULTILINE)[-1]
        administration = connection.replace(f":{self.port};", f":{port};").replace("UseDevelopmentEmulator=true;", "")
        return {
            "LUCIUS_BUS": "servicebus",
            "LUCIUS_SERVICEBUS_CONNECTION": connection,
            "LUCIUS_SERVICEBUS_ADMINISTRATION": administration,
            "LUCIUS_SERVICEBUS_ADMINISTRATION_CA_FILE": str(self._ca_folder / "servicebus-test-ca.pem"),
        }

    def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.words} ended by itself:\n{self.log[-3000:]}"
        return "Administration API on" in self.log[self._said_before :]

    def begin_outage(self) -> None:
        self._signal(signal.SIGUSR1, "An outage: ")

    def end_outage(self) -> None:
        self._signal(signal.SIGUSR2, "The outage is over.")

    def _signal(self, number: signal.Signals, answer: str) -> None:
        before = self.log.count(answer)
        os.kill(self.pid, number)
        end = time.monotonic() + START_SECONDS_MAX
        while self.log.count(answer) == before:
            assert self.is_ready()
            assert time.monotonic() < end, f"no answer to {number.name}:\n{self.log[-3000:]}"
            time.sleep(0.01)


@contextmanager
def servicebus_process(
    folder: Path, settings: Mapping[str, str], workers: Sequence[str] = ()
) -> Iterator[ServiceBusProcess]:
    """With everything that LUCIUS needs with these settings, as `lucius bus provision` prints it; shorter locks."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [word for worker in workers for word in ("--worker", worker)]
    printed = run_lucius(
        "bus", "provision", "--print", "json", *words, settings={**settings, "LUCIUS_BUS": "servicebus"}
    )
    assert printed.returncode == 0, printed.stderr
    document = json.loads(printed.stdout)
    for topic in document["UserConfig"]["Namespaces"][0]["Topics"]:
        for subscription in topic["Subscriptions"]:
            subscription["Properties"] |= {"LockDuration": LOCK, "MaxDeliveryCount": DELIVERIES_MAX}
    config = folder / "Config.json"
    config.write_text(json.dumps(document))
    with ServiceBusProcess(folder, config) as process:
        assert isinstance(process, ServiceBusProcess)
        yield process
