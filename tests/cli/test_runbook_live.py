"""Every command of runbooks and batches against a real server, with a worker started by `lucius runbook worker`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.crash.processes import LUCIUS, environment
from tests.terminals import CTRL_C, Terminal

from lucius.cli.main import cli

START_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 60.0
API_KEY = "lk_a_key_of_the_runbook_tests"

RUNBOOK = """
name: {name}
data_source: {{type: manual, primary_key: Key}}
phases:
  - name: prepare
    offset: T-1d
    steps:
      - {{name: look, worker_id: hands, function: Look, params: {{Key: "{{{{Key}}}}"}}, output_params: {{Id: id}}}}
      - {{name: make, worker_id: hands, function: Make, params: {{Id: "{{{{Id}}}}"}}, on_failure: undo}}
  - name: finish
    offset: T-0
    steps:
      - {{name: end, worker_id: hands, function: Look, params: {{Key: "{{{{Key}}}}"}}}}
on_member_removed:
  - {{name: forget, worker_id: hands, function: Look, params: {{Key: "{{{{Key}}}}"}}}}
rollbacks:
  undo:
    - {{name: unmake, worker_id: hands, function: Look, params: {{Key: "{{{{Key}}}}"}}}}
"""
FUNCTIONS = """
from lucius.functions import Fail, FunctionWorker

worker = FunctionWorker("somebody-else")


@worker.function("Look", quick=True)
def look(Key: str) -> dict:
    return {"id": f"id-of-{Key}"}


@worker.function("Make", quick=True)
def make(Id: str) -> dict:
    if "bad" in Id:
        raise Fail("it cannot be made")
    return {}
"""


class Live:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder

    def lucius(self, *arguments: str, code: int = 0) -> Any:
        ended = CliRunner().invoke(cli, ["--url", self.url, "--api-key", API_KEY, *arguments])
        assert ended.exit_code == code, ended.output
        return ended

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.lucius(*arguments, "--output", "json", code=code).stdout)

    def file(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text, "utf-8")
        return str(path)

    def publish(self, name: str) -> None:
        self.lucius("runbook", "publish", self.file(f"{name}.yaml", RUNBOOK.format(name=name)))

    def create(self, name: str, *keys: str, options: tuple[str, ...] = ()) -> str:
        csv = self.file(f"{name}.csv", "Key\n" + "".join(f"{key}\n" for key in keys))
        return str(self.json("batch", "create", name, "--csv", csv, *options)["batch_id"])

    def until(self, batch_id: str, is_reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_reached(batch := self.json("batch", "show", batch_id)):
            assert time.monotonic() < deadline, batch
            time.sleep(0.1)
        return dict(batch)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("runbooks")
    said = folder / "server.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    environ |= {"LUCIUS_API_KEY": API_KEY, "LUCIUS_SCHEDULER_INTERVAL": "0.2"}
    lucius = [sys.executable, "-m", "lucius.cli.main"]
    server = [*lucius, "up", "--no-services", "--port", "0", "--data", str(folder / "d")]
    (folder / "functions.py").write_text(FUNCTIONS)
    with ExitStack() as stack, said.open("wb") as log:
        up = stack.enter_context(subprocess.Popen(server, env=environ, cwd=folder, stdout=log, stderr=log))
        stack.callback(up.terminate)
        until = time.monotonic() + START_SECONDS_MAX
        while (found := re.search(r"is up at (\S+)", said.read_text("utf-8"))) is None:
            assert up.poll() is None, said.read_text("utf-8")
            assert time.monotonic() < until, "the server did not start in time"
            time.sleep(0.05)
        live = Live(found[1], folder)
        live.publish("known-to-the-worker")
        worker = [*lucius, "--url", live.url, "runbook", "worker", "functions.py", "--worker-id", "hands"]
        working = subprocess.Popen([*worker, "--concurrency", "4"], env=environ, cwd=folder, stdout=log, stderr=log)
        stack.enter_context(working)
        stack.callback(working.terminate)
        yield live


def test_versions_are_published_listed_compared_and_retired(live: Live) -> None:
    live.publish("versions")
    again = live.lucius("runbook", "publish", live.file("same.yaml", RUNBOOK.format(name="versions")))
    assert "nothing has changed" in again.stdout
    changed = live.file("changed.yaml", RUNBOOK.format(name="versions").replace("T-1d", "T-2d"))
    assert "~ phase prepare / offset: T-1d → T-2d" in live.lucius("runbook", "diff", "versions", changed).stdout
    assert "only one version" in live.lucius("runbook", "diff", "versions", code=2).stderr
    live.lucius("runbook", "publish", changed, "--overdue", "ignore", "--rerun-init")
    for arguments in ((), ("1",), ("1", "2")):
        answer = live.json("runbook", "diff", "versions", *arguments)
        assert (answer["from"], answer["to"], len(answer["differences"])) == (1, 2, 1)
    assert "are identical" in live.lucius("runbook", "diff", "versions", "2", "2").stderr
    assert live.lucius("runbook", "show", "versions", "--version", "2", "--yaml").stdout == Path(changed).read_text()
    shown = live.lucius("runbook", "show", "versions").stdout
    assert re.search(r"^2 +active +ignore +yes ", shown, re.MULTILINE)
    live.lucius("runbook", "stop", "versions")
    assert re.search(r"^versions +2 +stopped ", live.lucius("runbook", "list").stdout, re.MULTILINE)
    live.lucius("runbook", "start", "versions")
    live.lucius("runbook", "retire", "versions", "--yes")
    assert re.search(r"^versions +2 +retired ", live.lucius("runbook", "list").stdout, re.MULTILINE)
    assert "nothing to confirm" in live.lucius("runbook", "confirm", "versions", "--yes", code=3).stderr
    kinds = [one["kind"] for one in live.json("runbook", "events", "versions")["items"]]
    assert kinds == [
        "runbook-retired", "automation-on", "automation-off", "runbook-published", "runbook-published",
    ]  # fmt: skip
    assert "automation-off" in live.lucius("runbook", "events", "versions").stdout
    assert live.lucius("runbook", "preview", "versions", code=3).stderr != ""


def test_a_dry_run_shows_parameters_and_leaves_nothing(live: Live) -> None:
    live.publish("dry")
    csv = live.file("dry.csv", "Key\nann\nben\n")
    told = live.lucius("runbook", "dry-run", "dry", "--csv", csv, "--start", "2027-03-15", "--limit", "1").stdout
    assert "prepare, due 2027-03-14T00:00:00.000Z" in told
    assert "      Key: ann" in told
    assert "      filled in when it is sent: Id" in told
    assert "1 of 2 members" in told
    assert live.json("batch", "list", "--runbook", "dry")["items"] == []
    assert "No batches." in live.lucius("batch", "list", "--runbook", "dry").stderr


def test_a_batch_goes_by_itself_to_its_end(live: Live) -> None:
    live.publish("alone")
    batch_id = live.create("alone", "ann", "ben")
    ended = live.lucius("batch", "watch", batch_id, "--timeout", "60")
    assert "phase-ended  phase=finish" in ended.stdout
    assert f"Batch {batch_id} completed." in ended.stdout
    assert re.search(rf"^{batch_id} +alone +1 +completed +2 +0 +2 of 2", live.lucius("batch", "list").stdout, re.M)
    assert live.json("batch", "watch", batch_id)["status"] == "completed"
    grid = live.lucius("batch", "grid", batch_id).stdout.splitlines()
    assert grid[1].split() == ["ann", "✓", "✓", "✓"]
    assert "has ended" in live.lucius("batch", "cancel", batch_id, "--yes", code=3).stderr


def test_a_batch_is_operated_by_hand_from_begin_to_end(live: Live) -> None:
    live.publish("by-hand")
    batch_id = live.create("by-hand", "ann", "bad", "cy", options=("--manual", "--start", "2027-03-15"))
    live.until(batch_id, lambda batch: batch["status"] == "active")
    assert "Phase prepare starts manually" in live.lucius("batch", "why", batch_id).stdout
    assert "is still active" in live.lucius("batch", "watch", batch_id, "--timeout", "0.3", code=5).stderr
    assert "phase prepare begins" in live.lucius("batch", "advance", batch_id).stdout
    live.until(batch_id, lambda batch: batch["phase_list"][0]["status"] == "failed")

    assert "1 member joins" in live.lucius("batch", "add", batch_id, "--csv", live.file("late.csv", "Key\ndi\n")).stdout
    assert "1 member removed." in live.lucius("batch", "remove", batch_id, "cy", "--yes").stdout
    assert "no active member" in live.lucius("batch", "remove", batch_id, "nobody", "--yes", code=3).stderr
    live.until(batch_id, lambda batch: batch["phase_list"][0]["status"] == "failed")
    why = live.lucius("batch", "why", batch_id, "bad").stdout
    assert "Step prepare / make: rolled_back, it cannot be made." in why
    assert "Rollback step unmake: succeeded." in why
    assert live.json("batch", "why", batch_id, "bad")["member"] == "bad"
    assert "has no member nobody" in live.lucius("batch", "why", batch_id, "nobody", code=2).stderr

    assert "1 failed member retried." in live.lucius("batch", "retry", batch_id, "bad").stdout
    live.until(batch_id, lambda batch: batch["phase_list"][0]["status"] == "failed")
    assert "neither paused nor held" in live.lucius("batch", "resume", batch_id, code=3).stderr
    live.lucius("batch", "advance", batch_id)
    ended = live.lucius("batch", "watch", batch_id, "--timeout", "60", code=6)
    assert f"See `lucius batch why {batch_id}`." in ended.stdout

    grid = live.lucius("batch", "grid", batch_id).stdout
    rows = {line.split()[0]: line.split()[1:] for line in grid.splitlines() if line and line[0] in "abcd"}
    assert rows["ann"] == rows["di"] == ["✓", "✓", "✓"]
    assert rows["bad"] == ["✓", "↺", "–", "failed"]
    assert rows["cy"] == ["✓", "✓", "removed"]
    failed = live.lucius("batch", "grid", batch_id, "--status", "failed", "--limit", "5").stdout
    assert [line.split()[0] for line in failed.splitlines()[1:2]] == ["bad"]
    assert re.search(r"prepare +T-1d +failed +\d / \d steps", live.lucius("batch", "show", batch_id).stdout)
    assert "member-retried" in live.lucius("batch", "events", batch_id, "--limit", "100").stdout
    csv = live.lucius("batch", "export", batch_id).stdout
    assert csv.startswith('"member","status","prepare/look","prepare/make","finish/end"')
    out = Path("batch.csv")
    live.lucius("batch", "export", batch_id, "--out", str(out))
    assert out.read_text() == csv


def test_ctrl_c_ends_only_the_watching(live: Live, tmp_path: Path) -> None:
    live.publish("left-alone")
    batch_id = live.create("left-alone", "ann", options=("--manual",))
    live.until(batch_id, lambda batch: batch["status"] == "active")
    settings = environment({"LUCIUS_URL": live.url, "LUCIUS_API_KEY": API_KEY})
    command = (LUCIUS, "batch", "watch", batch_id)
    with Terminal(*command, folder=tmp_path, environment=settings) as screen:
        screen.wait_for("hase prepare starts manually")
        screen.press(CTRL_C)
        assert screen.end() == 130, screen.shown
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as piped:
        assert piped.stdout is not None
        assert piped.stdout.readline(), "it shows the first event"
        piped.send_signal(signal.SIGINT)
        stderr = piped.communicate(timeout=WAIT_SECONDS_MAX)[1]
        assert piped.returncode == 130, stderr
    for shown in (screen.shown, stderr):
        assert f"Interrupted. Batch {batch_id} continues:\n" in shown
        assert re.search(rf"^  \S*lucius batch watch {batch_id} +follows it$", shown, re.MULTILINE)
        assert re.search(rf"^  \S*lucius batch cancel {batch_id} +cancels it$", shown, re.MULTILINE)
        assert "Traceback" not in shown
    assert live.json("batch", "show", batch_id)["status"] == "active"


def test_a_cancelled_batch_keeps_the_reason(live: Live) -> None:
    live.publish("stopped")
    batch_id = live.create("stopped", "ann", options=("--manual",))
    live.until(batch_id, lambda batch: batch["status"] == "active")
    assert "is cancelled" in live.lucius("batch", "cancel", batch_id, "--yes", "--reason", "not this week").stdout
    assert "not this week" in live.lucius("batch", "why", batch_id).stdout
    assert "was cancelled" in live.lucius("batch", "retry", batch_id, code=3).stderr
