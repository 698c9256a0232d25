"""The page for a new runbook, done word by word in a folder of its own: every command, against real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pages import DOCS, blocks, read

PAGE = DOCS / "how-to" / "write-a-runbook.md"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
BLOCK_SECONDS_MAX = 120.0
SETTLE_SECONDS_MAX = 120.0


class Typed:
    """Runs what the page says to type: to its end, or until the test is over."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.environ = environ
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, script: str) -> str:
        ran = self._run(script)
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def run_until_printed(self, script: str, expected: str) -> None:
        """Run it repeatedly, as a person who looks too early would: it may fail until there is something to see."""
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while expected not in (ran := self._run(script)).stdout:
            assert time.monotonic() < until, f"{script}\n{ran.stdout}\n{ran.stderr}"
            time.sleep(1.0)
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"

    def _run(self, script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(
            command, cwd=self._folder, env=self.environ, capture_output=True, text=True, timeout=BLOCK_SECONDS_MAX
        )

    def start(self, script: str, pattern: str) -> str:
        """Leave it running, once it has said this."""
        said = self._folder / f"said-{len(self._running)}.log"
        with said.open("wb") as log:
            started = subprocess.Popen(
                ["bash", "-euc", script],
                cwd=self._folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(started)
        until = time.monotonic() + START_SECONDS_MAX
        while (found := re.search(pattern, said.read_text("utf-8"))) is None:
            assert started.poll() is None, said.read_text("utf-8")
            assert time.monotonic() < until, f"{pattern} was not said in time:\n{said.read_text('utf-8')}"
            time.sleep(0.05)
        return found[0]

    def end(self) -> None:
        """As Ctrl-C does it, the last one first; what does not end by that is killed."""
        for running in reversed(self._running):
            try:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGINT)
                running.wait(STOP_SECONDS_MAX)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait(STOP_SECONDS_MAX)


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Typed]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LUCIUS_", "PYTEST_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    made = Typed(tmp_path, clean | {"PATH": path, "LUCIUS_PORT": "0"})
    yield made
    made.end()


@pytest.mark.timeout(600)
def test_the_page_for_a_new_runbook_works_word_by_word(tmp_path: Path, typed: Typed) -> None:
    found = blocks(read(PAGE))
    for language, name in (("csv", "members.csv"), ("yaml", "runbook.yaml"), ("python", "functions.py")):
        (content,) = [content for kind, content in found if kind == language]
        (tmp_path / name).write_text(content, "utf-8")
    validate, rehearse, up, publish, work, look, mend, change = (text for kind, text in found if kind == "bash")
    shown_valid, shown_grid = (text for kind, text in found if kind == "text")

    assert typed.run(validate) == shown_valid
    assert "vpn-rollout, 4 members" in typed.run(rehearse)

    typed.environ["LUCIUS_URL"] = typed.start(up, r"(?<=is up at )http://\S+")
    published = typed.run(publish)
    assert "vpn-rollout, version 1, is published and active." in published
    assert "gw-north" in published
    typed.start(work, r"vpn: functions: New-Profile")
    typed.run_until_printed(look, shown_grid)

    mended = typed.run(mend)
    assert "Batch 1 completed." in mended
    changed = typed.run(change)
    assert "Thank you, {{Name}}. → Thanks, {{Name}}." in changed
    assert "vpn-rollout, version 2, is published and active." in changed
