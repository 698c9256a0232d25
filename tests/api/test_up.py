"""`lucius up` as a newcomer meets it: a sample job that finishes, commands that work on it, and a graceful end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

LUCIUS = (sys.executable, "-m", "lucius.cli.main")
STOP_SECONDS_MAX = 10.0


def lucius(server: Any, *arguments: str, code: int = 0) -> Any:
    """Run a command against the server; the JSON that it printed."""
    environment = server.environment | {"LUCIUS_URL": server.url}
    ran = subprocess.run(
        [*LUCIUS, *arguments, "--output", "json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout) if ran.stdout else ran.stderr


@pytest.fixture(scope="module")
def sampled(serve: Any) -> Any:
    """A server that has run its sample job."""
    server = serve("--sample")
    server.wait_for(r"LUCIUS stays up at")
    return server


def test_sample_job_finishes_and_shows_its_answers(sampled: Any) -> None:
    assert "questions about contract.pdf" in sampled.said
    result = Path(sampled.wait_for(r"Result: (\S+)"))
    answers = json.loads(result.read_bytes())["answers"]
    assert len(answers) == 3
    assert all(answer["answer"] for answer in answers)


def test_commands_work_on_what_is_up(sampled: Any) -> None:
    job_id = sampled.wait_for(r"Sample job ([0-9a-f-]{36})")
    job = lucius(sampled, "get", job_id)
    assert (job["jobId"], job["status"]) == (job_id, "SUCCEEDED")
    assert [step["status"] for step in job["steps"]] == ["SUCCEEDED"] * 3
    assert [one["jobId"] for one in lucius(sampled, "list", "--status", "SUCCEEDED")["items"]] == [job_id]
    types = [event["type"] for event in lucius(sampled, "events", job_id)["events"]]
    assert (types[0], types[-1], types.count("RESULT")) == ("ACCEPTED", "JOB_SUCCEEDED", 3)
    assert "JOB_TERMINAL" in lucius(sampled, "cancel", job_id, code=3)
    seen = {one["name"]: one for one in lucius(sampled, "workers")["items"]}
    assert set(seen) == {"ocr", "embedding", "sis"}
    assert {one["version"].partition(" ")[0] for one in seen.values()} == {"lucius"}
    # As each said when it last asked for work, at most one job ago.
    assert all(one["in_work"] in (0, 1) for one in seen.values()), seen
    assert "JOB_NOT_FOUND" in lucius(sampled, "get", "018f6b1e-7c00-7000-8000-0123456789ab", code=3)


def test_job_that_waits_can_be_cancelled(sampled: Any, tmp_path: Path) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600))
    envelope = {
        "tenant_id": "acme", "request_type": "OCR", "input_ref": "https://a.example/in", "payload": {},
        "output_ref": "https://a.example/out", "schema_version": "1", "not_before": moment,
    }  # fmt: skip
    (tmp_path / "later.json").write_text(json.dumps(envelope))
    accepted = lucius(sampled, "submit", str(tmp_path / "later.json"))
    assert accepted["status"] == "QUEUED"
    answer = {"jobId": accepted["jobId"], "status": "CANCELLED", "replayed": False}
    assert lucius(sampled, "cancel", accepted["jobId"]) == answer
    assert lucius(sampled, "get", accepted["jobId"], "--wait", code=1)["status"] == "CANCELLED"


def test_second_owner_of_the_folder_is_refused_by_name(sampled: Any) -> None:
    second = subprocess.run(
        [*LUCIUS, "up", "--port", "0", "--data", str(sampled.data)],
        env=sampled.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 4
    assert f"owned by process {sampled.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert httpx.get(sampled.url + "/readyz").status_code == 200, "the first one goes on"


def test_port_that_is_taken_is_named(sampled: Any, tmp_path: Path) -> None:
    port = sampled.url.rpartition(":")[2]
    second = subprocess.run(
        [*LUCIUS, "up", "--port", port, "--data", str(tmp_path / "other")],
        env=sampled.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 2
    assert f"127.0.0.1:{port}" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_it_gracefully_while_callers_wait(serve: Any, number: int) -> None:
    """A long poll, a wait for a job and a stream are all open: none of them keeps the server up."""
    server = serve()
    with server.client() as client, server.client() as other, server.client() as third:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600))
        envelope = {
            "tenant_id": "acme", "request_type": "OCR", "input_ref": "https://a.example/in", "payload": {},
            "output_ref": "https://a.example/out", "schema_version": "1", "not_before": moment,
        }  # fmt: skip
        job_id = client.post("/v1/commands", json=envelope).raise_for_status().json()["jobId"]
        headers = {"Accept": "text/event-stream"}
        with ThreadPoolExecutor(3) as pool:
            waits = [
                pool.submit(client.post, "/v1/directives:pull", json={"service": "ocr", "wait_seconds": 50}),
                pool.submit(other.get, f"/v1/jobs/{job_id}?wait_seconds=50"),
                pool.submit(third.get, f"/v1/jobs/{job_id}/events", headers=headers),
            ]
            time.sleep(0.3)
            assert server.stop(number, STOP_SECONDS_MAX) == 0, server.said
            answers = [wait.result(timeout=10) for wait in waits]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[0].json() == {"directives": []}
    assert answers[1].json()["status"] == "QUEUED"
    assert "event: end" in answers[2].text
    assert "Traceback" not in server.said


def test_ctrl_c_in_the_middle_of_the_sample_stops_it_too(serve: Any) -> None:
    server = serve("--sample")
    assert server.stop(signal.SIGINT, STOP_SECONDS_MAX) == 0, server.said
    assert "Traceback" not in server.said


def test_what_was_accepted_is_there_after_a_restart(serve: Any) -> None:
    first = serve("--no-services")
    envelope = {
        "tenant_id": "acme", "request_type": "OCR", "input_ref": "https://a.example/in", "payload": {},
        "output_ref": "https://a.example/out", "schema_version": "1",
    }  # fmt: skip
    with first.client() as client:
        job_id = client.post("/v1/commands", json=envelope).raise_for_status().json()["jobId"]
    first.process.kill()
    first.process.wait()
    second = type(first)(first.data, ("--no-services",), {})
    try:
        with second.client() as client:
            assert client.post("/v1/commands", json=envelope).json()["jobId"] == job_id
            pulled = client.post("/v1/directives:pull", json={"service": "ocr", "wait_seconds": 10}).json()
            assert [directive["jobId"] for directive in pulled["directives"]] == [job_id]
    finally:
        second.stop()
