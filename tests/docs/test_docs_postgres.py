"""The page on PostgreSQL, from a bare machine to a finished job: every command as it is written, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pages import DOCS, blocks, read
from tests.crash.processes import free_port

PAGE = DOCS / "how-to" / "postgres.md"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


@contextmanager
def running(script: str, folder: Path, environ: dict[str, str], said: str) -> Iterator[None]:
    """A terminal in which a program runs until Ctrl-C, once it has said that it is ready."""
    log = folder / f"{said.replace(' ', '-')}.log"
    with log.open("wb") as output:
        program = subprocess.Popen(
            ["bash", "-euc", script], cwd=folder, env=environ, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until = time.monotonic() + START_SECONDS_MAX
        while said not in log.read_text("utf-8"):
            assert program.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < until, f"{said} was not said:\n{log.read_text('utf-8')}"
            time.sleep(0.05)
        yield
        os.killpg(program.pid, signal.SIGINT)
        program.wait(STOP_SECONDS_MAX)
        assert "LUCIUS" not in said or " has stopped." in log.read_text("utf-8")
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait(STOP_SECONDS_MAX)


def test_the_page_leads_from_a_bare_machine_to_a_finished_job(tmp_path: Path) -> None:
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LUCIUS_", "PYTEST_"))}
    environ = clean | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}",
        "LUCIUS_PORT": str(port),
        "LUCIUS_URL": f"http://127.0.0.1:{port}",
        "LUCIUS_MANAGEMENT_PORT": "0",
    }
    typed = [content.replace(":8000", f":{port}") for language, content in blocks(read(PAGE)) if language == "bash"]
    install, postgres, settings, upgrade, enter, api, reconciler, services, submit, stop = typed
    assert install.splitlines() == ["make setup", ". .venv/bin/activate", "mkdir try-postgres", "cd try-postgres"]
    assert enter.splitlines() == [". .venv/bin/activate", "cd try-postgres", ". ./lucius.env"]

    def run(script: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script]
        ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    entered = ". ./lucius.env\n"
    run(postgres)
    try:
        run(settings + upgrade)
        with ExitStack() as terminals:
            terminals.enter_context(running(entered + api, tmp_path, environ, "LUCIUS API at"))
            terminals.enter_context(running(entered + reconciler, tmp_path, environ, "LUCIUS reconciler is running"))
            terminals.enter_context(running(entered + services, tmp_path, environ, "serves"))
            shown = run(entered + submit)
    finally:
        run(stop)
    assert "job SUCCEEDED" in shown
    answer = json.loads((tmp_path / ".lucius" / "files" / "demo" / "answer.json").read_text("utf-8"))
    assert "closed for repairs until 12 June" in answer["answers"][0]["answer"]
    assert not (tmp_path / "postgres" / "postmaster.pid").exists()
