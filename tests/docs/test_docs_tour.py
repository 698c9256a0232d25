"""The README's tour, run as it stands, against a server of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT, blocks, read

START_SECONDS_MAX = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    ((name, value),) = re.findall(r"^(LUCIUS_SOURCE_\w+)=(\S+) make run$", read(ROOT / "README.md"), re.MULTILINE)
    environ[name] = value.replace("$PWD", str(ROOT))
    said = tmp_path / "server.log"
    command = [sys.executable, "-m", "lucius.cli.main", "up", "--port", "0", "--data", str(tmp_path / "data")]
    with said.open("wb") as log, subprocess.Popen(command, env=environ, cwd=tmp_path, stderr=log) as process:
        try:
            until = time.monotonic() + START_SECONDS_MAX
            while (found := re.search(r"is up at (\S+)", said.read_text("utf-8"))) is None:
                assert process.poll() is None, said.read_text("utf-8")
                assert time.monotonic() < until, "the server did not start in time"
                time.sleep(0.05)
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)


def test_the_tour_of_the_readme_works(server: str, tmp_path: Path) -> None:
    typed, script = [content for language, content in blocks(read(ROOT / "README.md")) if language == "bash"]
    assert typed.count("$PWD/.lucius") == 1
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    environ |= {"LUCIUS_URL": server, "LUCIUS_DATA": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", typed.replace("$PWD/.lucius", str(tmp_path / "data"))],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "2 to 9 June" in ran.stdout
    assert "has not started" in ran.stdout
    assert "JOB_CANCELLED" in ran.stdout

    lines = script.splitlines()
    assert lines[:2] == ["URL=http://127.0.0.1:8000", "DATA=$PWD/.lucius"]
    lines[:2] = [f"URL={server}", f"DATA={tmp_path / 'data'}"]
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "event: JOB_SUCCEEDED" in ran.stdout
    assert "2 to 9 June" in ran.stdout
    assert "has not started" in ran.stdout
    assert '"status":"CANCELLED"' in ran.stdout

    (publish,) = re.findall(r"^\.venv/bin/lucius (runbook publish .+)$", read(ROOT / "README.md"), re.MULTILINE)
    lucius = [sys.executable, "-m", "lucius.cli.main", "--url", server]
    environ = {**os.environ, "LUCIUS_DATA": str(tmp_path / "data")}
    ran = subprocess.run([*lucius, *publish.split()], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "is published and active" in ran.stdout
