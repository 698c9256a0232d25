"""The page for a new user, done word by word in a folder of its own: every command, against real processes."""

from __future__ import annotations

import json
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

PAGE = DOCS / "how-to" / "write-a-service.md"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
BLOCK_SECONDS_MAX = 600.0

_JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Terminal:
    """Runs what a page says to type: to its end, or until it is told to stop."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self._environ = environ
        self._running: subprocess.Popen[bytes] | None = None

    def run(self, script: str, expected_code: int = 0) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script]
        ran = subprocess.run(
            command, cwd=self.folder, env=self._environ, capture_output=True, text=True, timeout=BLOCK_SECONDS_MAX
        )
        assert ran.returncode == expected_code, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def start(self, script: str, log: Path) -> None:
        with log.open("wb") as said:
            self._running = subprocess.Popen(
                ["bash", "-euc", script],
                cwd=self.folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def press_ctrl_c(self) -> None:
        """As a terminal does it: to the whole group. What does not end by that is killed, and the test fails."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGINT)
            running.wait(STOP_SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait(STOP_SECONDS_MAX)


@pytest.fixture
def environ() -> dict[str, str]:
    """An activated environment, as the page's installation leaves it; the port is a free one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LUCIUS_", "PYTEST_"))}
    return clean | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}", "LUCIUS_PORT": "0"}


@pytest.fixture
def terminals(tmp_path: Path, environ: dict[str, str]) -> Iterator[list[Terminal]]:
    made = [Terminal(tmp_path, environ) for _ in range(3)]
    yield made
    for terminal in reversed(made):
        terminal.press_ctrl_c()


def wait_for(said: Path, pattern: str, terminal: Terminal) -> str:
    until = time.monotonic() + START_SECONDS_MAX
    while (found := re.search(pattern, said.read_text("utf-8"))) is None:
        assert terminal.is_running(), said.read_text("utf-8")
        assert time.monotonic() < until, f"{pattern} was not said in time:\n{said.read_text('utf-8')}"
        time.sleep(0.05)
    return found[1]


def changed(diff: str) -> tuple[str, str]:
    """The lines before and after."""
    lines = diff.splitlines(keepends=True)
    return tuple("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")  # type: ignore[return-value]


@pytest.mark.timeout(900)
def test_the_page_for_a_new_service_works_word_by_word(
    tmp_path: Path, environ: dict[str, str], terminals: list[Terminal]
) -> None:
    found = blocks(read(PAGE))
    install, make, up, serve, submit, serve_changed, submit_again, look, serve_mended, redrive, test = (
        content for language, content in found if language == "bash"
    )
    shown = [content for language, content in found if language == "text"]
    first, second, third = terminals
    assert install.splitlines() == ["make setup", ". .venv/bin/activate", "cd .."]

    assert third.run(make) == shown[0]
    project = tmp_path / "tally"
    code = (project / "service.py").read_text("utf-8")
    assert next(content for language, content in found if language == "python") in code

    first.start(up, tmp_path / "server.log")
    url = wait_for(tmp_path / "server.log", r"is up at (\S+)", first)
    environ |= {"LUCIUS_URL": url, "LUCIUS_ORCHESTRATOR_URL": url}
    second.start(serve, tmp_path / "service.log")
    assert "job SUCCEEDED" in third.run(submit)
    result = json.loads((project / ".lucius" / "files" / "demo" / "result.json").read_text("utf-8"))
    assert result == json.loads(next(content for language, content in found if language == "json"))
    for terminal in (second, third):
        terminal.folder = project

    before, after = changed(next(content for language, content in found if language == "diff"))
    assert code.count(before) == 1
    (project / "service.py").write_text(code.replace(before, after), "utf-8")
    second.press_ctrl_c()
    second.start(serve_changed, tmp_path / "service.log")
    failed = third.run(submit_again, expected_code=1)
    assert "job FAILED_FINAL  INPUT_TOO_SHORT: 27 words; 100 are needed" in failed
    job_id = _JOB_ID.search(failed)
    assert job_id is not None
    told = third.run(_JOB_ID.sub(job_id[0], look))
    assert "It ended at step tally, attempt 1: INPUT_TOO_SHORT: 27 words; 100 are needed" in told
    assert "JOB_FAILED" in told
    wait_for(tmp_path / "service.log", r"(NON_RETRYABLE \(INPUT_TOO_SHORT: 27 words; 100 are needed\))", second)

    (project / "service.py").write_text(code, "utf-8")
    second.press_ctrl_c()
    second.start(serve_mended, tmp_path / "service.log")
    redriven = third.run(_JOB_ID.sub(job_id[0], redrive))
    assert f"a redrive of {job_id[0]}" in redriven
    assert "job SUCCEEDED" in redriven

    tested = third.run(test)
    assert "3 passed" in tested
    assert " 0 failed" in tested
