"""Replicas of a mortal service: processes with a state folder each, killed and started again by their pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.crash.processes import END_SECONDS_MAX, START_SECONDS_MAX, environment

SCRIPT = Path(__file__).with_name("mortal_service.py")
SERVICES = ("ocr", "embedding", "sis")


class Replica:
    def __init__(
        self, service: str, number: int, folder: Path, url: str, work_seconds: tuple[float, float], **settings: str
    ) -> None:
        self.service = service
        self.name = f"{service}-{number}"
        self.state = folder / self.name
        self.lives = 0
        self._marks = folder / f"{self.name}.marks"
        self._log = folder / f"{self.name}.log"
        self._words = [str(word) for word in (folder / "journal", self._marks, *work_seconds)]
        self._environment = environment(
            {
                "LUCIUS_ORCHESTRATOR_URL": url,
                "LUCIUS_PLATFORM_STATE": str(self.state),
                "LUCIUS_PLATFORM_CONCURRENCY": "4",
                **settings,
            }
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0
        self._begun: set[str] = set()
        self._read_up_to = 0

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        self.lives += 1
        self._begun.clear()
        with self._log.open("ab") as log:
            self._said_before = self._log.stat().st_size
            command = [sys.executable, str(SCRIPT), self.service, *self._words]
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def serves(self) -> bool:
        """Whether this life has got as far as asking for directives; one that ended instead is an error."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended by itself:\n{self.log[-3000:]}"
        return " serves " in self.log[self._said_before :]

    def in_work(self) -> set[str]:
        """The attempts whose function has begun in this life and has not come to its end."""
        if self._marks.exists():
            with self._marks.open("rb") as marks:
                marks.seek(self._read_up_to)
                for line in marks.read().decode().splitlines():
                    (self._begun.add if line[0] == "+" else self._begun.discard)(line[2:])
                self._read_up_to = marks.tell()
        return set(self._begun)

    def kill(self) -> set[str]:
        """`kill -9`; the attempts that it has cut short, as its marks prove when it is gone."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS_MAX)
        return self.in_work()


class Replicas:
    """So many replicas of each service. In a `with` block all serve at its beginning, and all are gone at its end."""

    def __init__(
        self,
        each: int,
        folder: Path,
        url: str,
        work_seconds: tuple[float, float],
        settings: Mapping[str, str],
        services: Sequence[str] = SERVICES,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._journal = folder / "journal"
        self.all = [
            Replica(service, number, folder, url, work_seconds, **settings)
            for service in services
            for number in range(1, each + 1)
        ]

    def __enter__(self) -> Replicas:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        for replica in self.all:
            replica.start()
        wait_until(lambda: all(replica.serves() for replica in self.all), "every replica serves")

    def kill(self) -> None:
        for replica in self.all:
            replica.kill()

    def in_work(self) -> set[str]:
        return {key for replica in self.all for key in replica.in_work()}

    def journal(self) -> list[str]:
        """A line for each side effect that was begun."""
        return self._journal.read_text().splitlines()

    def tracebacks(self) -> list[str]:
        return [f"{one.name}:\n{one.log[-3000:]}" for one in self.all if "Traceback" in one.log]


def wait_until(condition: Callable[[], bool], what: str, seconds_max: float = START_SECONDS_MAX) -> None:
    end = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < end, f"not in {seconds_max:g} s: {what}"
        time.sleep(0.02)
