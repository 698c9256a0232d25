"""Watching a job through an outage of the server, and leaving it with Ctrl-C."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.crash.processes import API_KEY, LUCIUS, Process, environment, free_port, run_lucius
from tests.terminals import CTRL_C, Terminal

from lucius.cli.jobs import watch

COMMAND = {
    "schema_version": "1",
    "tenant_id": "demo",
    "request_type": "OCR",
    "input_ref": "https://files.example.org/in",
    "output_ref": "https://files.example.org/out",
    "payload": {},
}


def test_watch_says_that_the_server_is_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    file = tmp_path / "command.json"
    file.write_text(json.dumps(COMMAND))
    settings = {"LUCIUS_MANAGEMENT_PORT": "0", "LUCIUS_DATA": str(tmp_path / "data")}
    with Process(*words, settings=settings, folder=tmp_path, port=free_port()) as server:
        url = {"LUCIUS_URL": f"http://127.0.0.1:{server.port}", "LUCIUS_API_KEY": API_KEY}
        submitted = run_lucius("submit", str(file), "--output", "json", settings=url)
        assert submitted.returncode == 0, submitted.stderr
        job_id = json.loads(submitted.stdout)["jobId"]
        with Terminal(LUCIUS, "watch", job_id, folder=tmp_path, environment=environment(url)) as screen:
            screen.wait_for(job_id)
            server.kill()
            screen.wait_for(r"(?s)(does not answer.*){3}")  # Redrawn with the rest: a line beside it is overwritten.
            server.start()
            screen.wait_for(r"answers again after \d+ s")
            screen.press(CTRL_C)
            assert screen.end() == 130, screen.shown
    told = screen.shown[screen.shown.index("answers again") :]
    assert f"Job {job_id} continues:" in told
    assert re.search(rf"lucius watch {job_id} +follows it", told)
    assert re.search(rf"lucius cancel {job_id} +cancels it", told)


def test_watch_gives_up_on_a_server_that_stays_away(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "AWAY_SECONDS_MAX", 1.5)
    working = {"jobId": "j1", "status": "RUNNING", "steps": []}
    scripted.on("GET /v1/jobs/j1", working, working)
    scripted.on("GET /v1/jobs/j1", {"code": "UNAVAILABLE", "detail": "the disk is full"}, status=503)
    ended = scripted.lucius("watch", "j1")
    assert ended.exit_code == 4, ended.output
    assert "does not answer: UNAVAILABLE: the disk is full" in ended.output
    assert "is tried for up to 1.5 s" in ended.output
    assert "Job j1 continues when the server does" in ended.output


def test_watch_does_not_mention_a_short_blip(scripted: Any) -> None:
    working = {"jobId": "j1", "status": "RUNNING", "steps": []}
    scripted.on("GET /v1/jobs/j1", working)
    scripted.on("GET /v1/jobs/j1", {"code": "UNAVAILABLE"}, status=503)
    scripted.on("GET /v1/jobs/j1", {**working, "status": "SUCCEEDED"})
    ended = scripted.lucius("watch", "j1")
    assert ended.exit_code == 0, ended.output
    assert "answer" not in ended.output


def test_watch_does_not_wait_for_a_server_that_refuses(scripted: Any) -> None:
    scripted.on("GET /v1/jobs/j1", {"jobId": "j1", "status": "RUNNING", "steps": []})
    scripted.on("GET /v1/jobs/j1", {"code": "UNAUTHENTICATED", "detail": "no"}, status=401)
    assert scripted.lucius("watch", "j1").exit_code == 3
