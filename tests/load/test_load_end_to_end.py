"""`lucius load` as its users run it, against a server of its own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.crash.processes import API_KEY, LUCIUS, Process, environment, free_port

from lucius.cli.failures import Unusable
from lucius.cli.main import cli
from lucius.cli.tools.load import _refuse_remote
from lucius.client.errors import Unreachable
from lucius.load import connections
from lucius.load.commands import Commands
from lucius.load.plan import LoadPlan
from lucius.load.run import run
from lucius.platform.file_roots import SAMPLES

RUN_SECONDS_MAX = 150.0
QUICK = {"LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.05", "LUCIUS_LEASE_SECONDS": "3", "LUCIUS_LOG_LEVEL": "ERROR"}
NOWHERE = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


def start(folder: Path, **settings: str) -> Process:
    words = ("up", "--no-services", "--data", str(folder / "data"))
    return Process(*words, settings={**QUICK, **settings}, folder=folder, port=free_port())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with start(tmp_path_factory.mktemp("server")) as process:
        yield process


def begin(server: Process, *words: str) -> subprocess.Popen[str]:
    url = f"http://127.0.0.1:{server.port}"
    return subprocess.Popen(
        [LUCIUS, "--url", url, "load", *words],
        env=environment({}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def load(server: Process, *words: str) -> tuple[int, str, str]:
    with begin(server, *words) as process:
        try:
            out, err = process.communicate(timeout=RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, out, err


def report(server: Process, *words: str, code: int = 0) -> dict[str, Any]:
    ended, out, err = load(server, *words, "--output", "json")
    assert ended == code, f"{out}\n{err}"
    told = json.loads(out)
    assert isinstance(told, dict)
    return told


def jobs_of(server: Process, tenant_id: str) -> list[dict[str, Any]]:
    """Every job of a tenant, as the server has them."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        query = f"tenant_id={tenant_id}&limit=500" + (f"&cursor={cursor}" if cursor else "")
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/jobs?{query}", headers={"Authorization": f"Bearer {API_KEY}"}
        )
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            page = json.load(answer)
        found += page["items"]
        cursor = page["next"]
        if not cursor:
            return found


def command_file(folder: Path, tenant_id: str) -> str:
    command = {
        "schema_version": "1", "tenant_id": tenant_id, "request_type": "OCR",
        "input_ref": os.path.relpath(SAMPLES / "contract.pdf", folder), "output_ref": "s3://results/out", "payload": {},
    }  # fmt: skip
    path = folder / f"{tenant_id}.json"
    path.write_text(json.dumps(command))
    return str(path)


MIX = ("--fail-retryable", "8", "--fail-final", "3", "--rate-limit", "2", "--duplicate", "10")


def test_counts_add_up_with_the_servers_own(server: Process, tmp_path: Path) -> None:
    told = report(
        server, command_file(tmp_path, "mixed"), "--jobs", "300", "--play-services", *MIX, "--lose", "2",
        "--work-ms", "0-20", "--seed", "11",
    )  # fmt: skip
    jobs, services = told["jobs"], told["services"]
    found = jobs_of(server, "mixed")
    assert len(found) == jobs["submitted"] == jobs["accepted"] == jobs["ended_total"] == 300
    assert jobs["ended"] == Counter(job["status"] for job in found)
    assert jobs["ended"]["SUCCEEDED"] > 200
    assert jobs["ended"]["FAILED_FINAL"] > 0
    assert told["ending"] == "COMPLETE"
    assert told["retries"] == sum(job["attempts_total"] - 1 for job in found) > 0
    assert 1 <= told["in_flight_max"] <= 50
    assert all(job["input_ref"].startswith("file://") for job in found), "read as submit reads it"
    for latency in told["latency_ms"].values():
        assert latency["count"] == 300
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert services["directives"] == sum(services["verdicts"].values()) >= 300
    assert services["verdicts"]["lost"] > 0
    assert services["callbacks"]["RESULT"]["DUPLICATE"] >= services["results_sent_twice"] > 0
    answered = services["directives"] - services["verdicts"]["lost"] + services["results_sent_twice"]
    assert sum(services["callbacks"]["RESULT"].values()) == answered
    assert services["directives_by_service"] == {"ocr": services["directives"]}


def test_the_same_seed_makes_the_same_attempts_fail(server: Process) -> None:
    words = ("--jobs", "150", "--request-type", "OCR_EMBEDDING", "--play-services", *MIX, "--seed")
    first, second, other = (report(server, *words, seed) for seed in ("5", "5", "6"))
    for name in ("verdicts", "results_sent_twice", "directives"):
        assert first["services"][name] == second["services"][name]
    assert (first["jobs"], first["retries"]) == (second["jobs"], second["retries"])
    assert first["services"]["verdicts"] != other["services"]["verdicts"]


def test_tenants_share_the_commands_of_every_shipped_protocol(server: Process) -> None:
    kinds = ("OCR", "EMBEDDING", "SIS", "OCR_EMBEDDING", "EMBEDDING_SIS", "OCR→EMBEDDING→SIS")
    before = [Counter(job["request_type"] for job in jobs_of(server, f"load-{number}")) for number in (1, 2, 3)]
    for kind in kinds:
        told = report(server, "--request-type", kind, "--jobs", "6", "--tenants", "3", "--play-services")
        assert told["jobs"]["ended"] == {"SUCCEEDED": 6}
    after = [Counter(job["request_type"] for job in jobs_of(server, f"load-{number}")) for number in (1, 2, 3)]
    for old, new in zip(before, after, strict=True):
        assert sum((new - old).values()) == 2 * len(kinds)


def test_few_jobs_in_flight_are_followed_one_by_one(server: Process) -> None:
    told = report(server, "--jobs", "5", "--in-flight", "1", "--play-services")
    assert told["jobs"]["ended"] == {"SUCCEEDED": 5}
    assert told["in_flight_max"] == 1
    assert told["look_ms"]["count"] == 0


def test_a_paced_run_does_not_hide_what_it_could_not_send(server: Process) -> None:
    words = ("--rate", "200", "--seconds", "1", "--in-flight", "1", "--work-ms", "30", "--play-services")
    told = report(server, *words)
    jobs = told["jobs"]
    assert jobs["submitted"] + jobs["unsent"] == 200
    assert jobs["unsent"] > 150, "three steps of 30 ms leave time for no more than eleven jobs"
    assert told["latency_ms"]["job"]["max"] > 400, (
        "the last was meant for 50 ms after the first, and sent when a slot was free"
    )


def test_refused_commands_are_counted_and_sent_again(tmp_path: Path) -> None:
    with start(tmp_path, LUCIUS_MAX_INFLIGHT_PER_TENANT="5") as server:
        told = report(server, "--jobs", "40", "--in-flight", "20", "--work-ms", "20", "--play-services")
        assert told["jobs"]["ended"] == {"SUCCEEDED": 40}
        assert told["refused"]["TENANT_SATURATED"] > 0
        assert told["jobs"]["submitted"] == told["jobs"]["accepted"] == 40
        assert len(jobs_of(server, "load-1")) == 40


def test_a_server_that_is_killed_and_comes_back_costs_no_job(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        words = ("--jobs", "250", "--rate", "60", "--in-flight", "100", "--play-services", "--output", "json")
        with begin(server, *words) as process:
            assert process.stderr is not None
            assert "elapsed" in process.stderr.readline()
            server.kill()
            server.start()
            server.wait_ready()
            out, err = process.communicate(timeout=RUN_SECONDS_MAX)
        assert process.returncode == 0, err
        told = json.loads(out)
        assert told["jobs"]["ended"] == {"SUCCEEDED": 250}
        assert len(jobs_of(server, "load-1")) == 250
        assert told["refused"].get("NO_ANSWER", 0) + told["retried_calls"].get("NO_ANSWER", 0) > 0


def test_jobs_that_nobody_works_on_end_the_run_in_time(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        file = command_file(tmp_path, "idle")
        began = time.monotonic()
        code, out, err = load(server, file, "--jobs", "3", "--drain-seconds", "1")
        assert code == 5, err
        assert "3 still open" in out
        assert "--drain-seconds" in err
        assert time.monotonic() - began < 60
        told = report(server, file, "--jobs", "30", "--in-flight", "3", "--drain-seconds", "1", code=5)
        assert told["ending"] == "INCOMPLETE", "it stalls before all are submitted"
        assert (told["jobs"]["submitted"], told["jobs"]["open"]) == (3, 3)
        played = report(server, "--request-type", "OCR", "--jobs", "4", "--play-services")
        assert played["services"]["directives_of_others"] == 6, "a service answers whatever waits for it"
        assert {job["status"] for job in jobs_of(server, "idle")} == {"SUCCEEDED"}


def test_ctrl_c_stops_and_still_reports(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        words = ("--seconds", "120", "--rate", "30", "--play-services", "--output", "json")
        with begin(server, *words) as process:
            assert process.stderr is not None
            assert "elapsed" in process.stderr.readline()
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60.0)
        assert process.returncode == 130, err
        told = json.loads(out)
        assert told["ending"] == "INTERRUPTED"
        assert told["jobs"]["ended_total"] == told["jobs"]["accepted"] == len(jobs_of(server, "load-1")) > 0


def test_text_report_says_what_happened(server: Process) -> None:
    code, out, err = load(server, "--jobs", "20", "--play-services", "--seed", "9")
    assert code == 0, err
    for told in ("20 submitted, 20 accepted, 20 ended", "20 SUCCEEDED", "jobs/s", "seed 9", "whole job", "60 APPLIED"):
        assert told in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--lose", "5"], "--play-services"),
        (["--work-ms", "5"], "--play-services"),
        (["--play-services", "--lose", "60", "--fail-final", "60"], "120"),
        (["--play-services", "--work-ms", "9-5"], "9-5"),
        (["--jobs", "1000001"], "--jobs"),
        (["--request-type", "OCR", __file__], "--request-type"),
    ],
)
def test_options_that_cannot_be_used_are_refused(words: list[str], told: str) -> None:
    shown = CliRunner().invoke(cli, ["--url", NOWHERE, "load", *words])
    assert shown.exit_code == 2
    assert told in shown.output


@pytest.mark.parametrize("url", ["http://198.51.100.7:8000", "https://lucius.example", "http://127.0.0.1.example:80"])
def test_a_server_elsewhere_is_not_loaded_unless_asked_for(url: str) -> None:
    shown = CliRunner().invoke(cli, ["--url", url, "load"])
    assert shown.exit_code == 2
    assert "--allow-remote" in shown.output
    with pytest.raises(Unusable):
        _refuse_remote(url, allowed=False)
    _refuse_remote(url, allowed=True)


def test_a_server_out_of_reach_is_said_to_be(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["--url", NOWHERE, "load"])
    assert shown.exit_code == 4
    assert "is unreachable" in shown.output


def test_a_command_with_faults_is_refused_before_anything_is_sent(server: Process, tmp_path: Path) -> None:
    path = Path(command_file(tmp_path, "faulty"))
    path.write_text(path.read_text().replace('"payload": {}', '"payload": {"dpi": 1}'))
    code, _, err = load(server, str(path))
    assert code == 3
    assert "/payload/dpi" in err
    assert jobs_of(server, "faulty") == []
    code, _, err = load(server, "--request-type", "NOBODY_SERVES_THIS")
    assert code == 3, err


def test_a_run_gives_up_on_a_server_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(connections, "RETRY_SECONDS", 0.05)
    commands = Commands({"tenant_id": "t"}, None)
    nowhere = connections.Connections(NOWHERE, "")
    told, halt = asyncio.run(run(LoadPlan(jobs=5, in_flight=2), nowhere, commands, [], io.StringIO()))
    assert told["ending"] == "UNREACHABLE"
    assert isinstance(halt.cause, Unreachable)
    assert told["refused"]["NO_ANSWER"] >= 2
    assert told["jobs"]["not_accepted"] == told["jobs"]["submitted"] == 2
