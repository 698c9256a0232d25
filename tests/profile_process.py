"""`lucius up --profile` as a process, with everything that it starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.crash.processes import environment

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
LUCIUS = (sys.executable, "-m", "lucius.cli.main")

WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
from lucius.cli.main import main
main()
"""


class Profile:
    """It and all that it has started are gone when the test is."""

    def __init__(self, profile: str, folder: Path, *words: str, settings: Mapping[str, str] | None = None) -> None:
        self.data = folder / "data"
        self._log = folder / "profile.log"
        known = environment(settings or {})
        self._environment = {name: value for name, value in known.items() if name != "LUCIUS_API_KEY"}
        command = [*LUCIUS, "up", "--profile", profile, "--port", "0", "--data", str(self.data), *words]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = START_SECONDS_MAX) -> str:
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said)):
            assert self.process.poll() is None, f"it ended:\n{self.said}"
            assert time.monotonic() < end, f"{pattern} was not said:\n{self.said}"
            time.sleep(0.1)
        return found[found.re.groups]

    def management(self) -> dict[str, str]:
        """The management address of each role."""
        told = self.wait_for(r"  management   ((?:\w+ http\S+\s+)+)data").split()
        return dict(zip(told[::2], told[1::2], strict=True))

    def lucius(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in a shell that has read the profile's settings, as the greeting says."""
        return subprocess.run(
            self._in_shell(words),
            env=self._environment, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=False,
        )  # fmt: skip

    def start(self, *words: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """The same for a command that runs until it is stopped."""
        return subprocess.Popen(self._in_shell(words), env=self._environment, stdout=output, stderr=output)

    def _in_shell(self, words: Sequence[str]) -> list[str]:
        line = self.wait_for(r"settings +(set -a; .+; set \+a)")
        return ["sh", "-c", f'{line}; exec "$@"', "sh", *LUCIUS, *words]

    def processes(self) -> dict[int, str]:
        """Every process but its own that works in its data folder, by what shows in /proc."""
        folder = str(self.data).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    line = (entry / "cmdline").read_bytes()
                    traces = (line, (entry / "environ").read_bytes(), os.readlink(entry / "cwd").encode())
                except OSError:
                    continue  # It has just ended, or is not ours to look at.
                if any(folder in trace for trace in traces):
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode().strip()
        return found

    def wait_alone(self) -> dict[int, str]:
        end = time.monotonic() + STOP_SECONDS_MAX
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS_MAX)
        for pid in self.wait_alone():
            os.kill(pid, signal.SIGKILL)


def lucius_without(missing: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command where a package is not installed."""
    command = [sys.executable, "-c", WITHOUT.format(missing=missing), *words]
    return subprocess.run(command, env=environment({}), capture_output=True, text=True, timeout=60, check=False)
