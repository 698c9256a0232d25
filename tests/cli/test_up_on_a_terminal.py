"""`lucius up` as a person sees it on a terminal, and as a supervisor reads it from a pipe."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.crash.processes import LUCIUS, environment, free_port, run_lucius
from tests.terminals import CTRL_C, Terminal

ROOT = Path(__file__).parents[2]
TOO_SHORT = {
    "schema_version": "1",
    "tenant_id": "demo",
    "request_type": "OCR_EMBEDDING_SIS",
    "payload": {"sis": {"prompt_set": ["?"]}},
}


def failing_command(folder: Path) -> Path:
    """Accepted, but its input does not exist."""
    files = folder / "data" / "files" / "demo"
    refs = {"input_ref": (files / "none.txt").as_uri(), "output_ref": (files / "out.json").as_uri()}
    path = folder / "command.json"
    path.write_text(json.dumps({**TOO_SHORT, **refs}))
    return path


def test_a_terminal_shows_warnings_for_people_and_says_when_up_has_stopped(tmp_path: Path) -> None:
    port = str(free_port())
    settings = environment({"LUCIUS_API_KEY": "", "LUCIUS_MANAGEMENT_PORT": "0"})
    with Terminal(LUCIUS, "up", "--port", port, "--data", "data", folder=tmp_path, environment=settings) as up:
        up.wait_for("management  http")
        up.wait_for("Press Ctrl-C to stop it.")
        key = up.wait_for(r"API key     (\S+)")[1]
        url = {"LUCIUS_URL": f"http://127.0.0.1:{port}", "LUCIUS_API_KEY": key}
        ended = run_lucius("submit", str(failing_command(tmp_path)), "--watch", settings=url)
        assert ended.returncode == 1, ended.stderr
        up.wait_for("JOB_FAILED")
        up.press(CTRL_C)
        assert up.end() == 0, up.shown
    lines = up.shown.splitlines()
    assert not [line for line in lines if line.startswith("{")], "no JSON on a terminal"
    assert not [line for line in lines if "INFO" in line or " serves " in line], "no chatter on a terminal"
    (warning,) = [line for line in lines if "JOB_FAILED" in line]
    assert re.match(r"\d\d:\d\d:\d\d WARNING  job [0-9a-f-]{36}: JOB_FAILED INPUT_NOT_FOUND: ", warning), warning
    assert "correlation_id=" not in warning
    assert lines[-1].startswith("LUCIUS has stopped. Its jobs are kept in ")
    assert str(tmp_path / "data") in lines[-1]


def test_a_pipe_gets_json_and_the_stopped_line(tmp_path: Path) -> None:
    words = [LUCIUS, "up", "--port", "0", "--data", str(tmp_path / "data")]
    settings = environment({"LUCIUS_MANAGEMENT_PORT": "0"})
    with subprocess.Popen(words, env=settings, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        said = []
        for line in up.stderr:
            said.append(line)
            if " serves " in line:
                break
        up.terminate()
        said += up.stderr.readlines()
    assert up.returncode == 0
    logged = [json.loads(line) for line in said if line.startswith("{")]
    assert "INFO" in {line["level"] for line in logged}
    assert said[-1].startswith("LUCIUS has stopped.")


def test_make_says_that_it_installs_before_it_does(tmp_path: Path) -> None:
    """The interpreter named here does not exist, so that nothing is installed; what was said before counts."""
    words = ["make", "--no-print-directory", "setup", f"VENV={tmp_path / 'venv'}", "PYTHON=no-such-python"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert ended.stdout.startswith(f"Installing LUCIUS into {tmp_path / 'venv'}")
