"""A worker written with curl alone finishes a job: the example of docs/how-to/curl-worker.md, run as it stands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "curl-worker.sh"


@pytest.fixture(scope="module")
def server(serve: Any) -> Any:
    return serve("--no-services")


def run_worker(server: Any, service: str, count: int = 1, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "LUCIUS_URL": server.url, "LUCIUS_API_KEY": server.key} | environment
    return subprocess.run(
        ["bash", str(SCRIPT), service, str(count)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def submit(client: Any, number: int) -> str:
    envelope = {
        "tenant_id": "acme",
        "request_type": "OCR_EMBEDDING_SIS",
        "input_ref": f"https://documents.example/{number}.pdf",
        "output_ref": "https://documents.example/answers.json",
        "payload": {"sis": {"prompt_set": ["When does the contract end?"]}},
        "schema_version": "1",
    }
    answer = client.post("/v1/commands", json=envelope)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["jobId"]
    return job_id


def test_curl_finishes_a_job_of_three_steps(server: Any) -> None:
    with server.client() as client:
        job_id = submit(client, 1)
        for service in ("ocr", "embedding", "sis"):
            ran = run_worker(server, service)
            assert ran.returncode == 0, ran.stderr
            assert f"{job_id} {service} attempt 1:" in ran.stdout
            assert "APPLIED" in ran.stdout
        job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["status"] == "SUCCEEDED"
    assert [step["artifacts"] for step in job["steps"]] == [
        {"done_by": "curl", "service": service} for service in ("ocr", "embedding", "sis")
    ]
    assert [step["attempt_no"] for step in job["steps"]] == [1, 1, 1]


def test_curl_finishes_as_many_as_it_is_told(server: Any) -> None:
    with server.client() as client:
        job_ids = {submit(client, number) for number in (2, 3)}
    ran = run_worker(server, "ocr", 2)
    assert ran.returncode == 0, ran.stderr
    assert {line.split()[0] for line in ran.stdout.splitlines()} == job_ids


def test_curl_gives_up_with_a_wrong_key_and_shows_no_secret(server: Any) -> None:
    ran = run_worker(server, "ocr", 1, LUCIUS_API_KEY="lk_wrong", PULLS_MAX="1")
    assert ran.returncode != 0
    assert "lk_wrong" not in ran.stdout + ran.stderr


def test_script_is_documented() -> None:
    page = (ROOT / "docs" / "how-to" / "curl-worker.md").read_text("utf-8")
    assert "examples/curl-worker.sh" in page
    for address in ("/v1/directives:pull", "/v1/callbacks/ack", "/v1/callbacks/heartbeat", "/v1/callbacks/result"):
        assert address in page
    for word in ("PULLS_MAX", "Lucius-Callback-Token", "STALE_ATTEMPT", "cancel_requested"):
        assert word in page
