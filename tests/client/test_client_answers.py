"""What answers become, which keys are sent, and what the client needs."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Invoke
from tests.client.faulty_server import Answer, FaultyServer

from lucius.client import AnswerInvalid, Client, Unauthenticated
from lucius.client.keys import find_key

JOB: dict[str, Any] = {
    "jobId": "j1",
    "tenant_id": "acme",
    "status": "FAILED_FINAL",
    "progress": 1,
    "created_at": "2026-01-31T08:15:30.250Z",
    "error": {"code": "BAD_INPUT", "message": "it is empty"},
    "waiting_on": None,
    "steps": [{"stepId": "ocr", "status": "FAILED_FINAL", "attempt_no": 2, "artifacts": {"a": 1}}],
    "a field of a later version": [1, 2],
}
UNREADABLE = {"jobId": "j2", "tenant_id": "acme", "error": {"code": "ROW_UNREADABLE", "message": "damaged"}}
ALONE = """
import sys
SERVER = {"apsw", "fastapi", "msgspec", "starlette", "uvicorn", "uvloop", "yaml", "jsonschema_rs", "jwt", "asyncpg",
          "click", "rich", "prometheus_client", "temporalio", "sqlalchemy"}
class Guard:
    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        if first in SERVER or (first == "lucius" and rest and rest.split(".")[0] != "client"):
            raise ImportError(f"the client must not import {name}")
sys.meta_path.insert(0, Guard())
import lucius.client
assert "httpx" not in sys.modules, "commands that call nobody must not pay for it"
with lucius.client.Client("http://127.0.0.1:9", "key", patience_seconds=0) as client:
    try:
        client.get("j1")
    except lucius.client.Unreachable as error:
        assert not error.may_have_arrived
        print("alone")
"""


def test_a_job_is_read_with_its_types(server: FaultyServer, invoke: Invoke) -> None:
    server.on("GET /v1/jobs/j1", Answer(200, JOB))
    job = invoke("get", "j1")
    assert (job.status, job.progress, job.has_ended, job.succeeded) == ("FAILED_FINAL", 1.0, True, False)
    assert job.created_at == datetime(2026, 1, 31, 8, 15, 30, 250_000, UTC)
    assert (job.error.code, job.waiting_on, job.steps[0].artifacts) == ("BAD_INPUT", None, {"a": 1})
    assert job.raw == JOB


def test_pages_are_joined_up_to_the_limit(server: FaultyServer, invoke: Invoke) -> None:
    pages = [{"items": [JOB, UNREADABLE], "next": "c2"}, {"items": [JOB], "next": "c3"}]
    server.on("GET /v1/jobs", *(Answer(200, page) for page in pages))
    page = invoke("jobs", tenant_id="acme", status="FAILED_FINAL", limit=3)
    assert ([job.job_id for job in page], page.next, len(page)) == (["j1", "j2", "j1"], "c3", 3)
    assert (page.items[1].status, page.items[1].error.code) == ("", "ROW_UNREADABLE")
    first, second = (one.query for one in server.received)
    assert first == "tenant_id=acme&status=FAILED_FINAL&limit=3"
    assert second == "tenant_id=acme&status=FAILED_FINAL&limit=1&cursor=c2"


@pytest.mark.parametrize(
    "content",
    [
        b"hello", b"[]", b"[" * 100_000, {"status": "QUEUED"}, {**JOB, "jobId": 7}, {**JOB, "progress": "half"},
        {**JOB, "steps": {}}, {**JOB, "created_at": "yesterday"}, {**JOB, "created_at": "2026-01-31T08:15:30"},
        {**JOB, "dead_letter": 1}, {**JOB, "attempts_total": True},
    ],
)  # fmt: skip
def test_an_answer_that_is_none_of_lucius_is_raised(server: FaultyServer, invoke: Invoke, content: Any) -> None:
    server.on("GET /v1/jobs/j1", Answer(200, content))
    with pytest.raises(AnswerInvalid):
        invoke("get", "j1")


def test_no_list_of_members_is_not_every_member(server: FaultyServer) -> None:
    """An empty list that a program has computed must not retry all failed members."""
    server.on("POST /v1/batches/1:retry", Answer(200, {}))
    with Client(server.url, "key") as client:
        client.batches.retry(1)
        client.batches.retry(1, [])
    assert [one.body for one in server.received] == [{}, {"members": []}]


def test_the_key_of_this_machine_is_found_even_if_it_is_made_later(server: FaultyServer, tmp_path: Path) -> None:
    server.on("GET /v1/jobs/j1", Answer(401, {"code": "UNAUTHENTICATED"}), Answer(200, JOB))
    with Client(server.url) as client:
        (tmp_path / ".lucius").mkdir()
        (tmp_path / ".lucius" / "api-key").write_text("made-later\n")
        client.get("j1")
    assert [one.headers.get("Authorization") for one in server.received] == [None, "Bearer made-later"]


def test_a_refused_key_is_not_sent_again(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCIUS_API_KEY", "given")
    server.on("GET /v1/jobs/j1", Answer(401, {"code": "UNAUTHENTICATED"}))
    with Client(server.url) as client, pytest.raises(Unauthenticated):
        client.get("j1")
    assert [one.headers.get("Authorization") for one in server.received] == ["Bearer given"]


def test_the_key_of_this_machine_is_for_servers_on_it(tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text("of-this-machine\n")
    environment = {"LUCIUS_DATA": str(tmp_path)}
    assert find_key("http://127.0.0.1:8000", environment) == "of-this-machine"
    assert find_key("http://lucius.example.org", environment) == ""


@pytest.mark.parametrize("name", ["LUCIUS_ORCHESTRATOR_URL", "LUCIUS_URL"])
def test_the_address_is_found_in_the_environment(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LUCIUS_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(name, server.url)
    server.on("GET /v1/jobs/j1", Answer(200, JOB))
    with Client(api_key="key") as client:
        assert client.get("j1").job_id == "j1"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://host:port", "http://[::1"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Client(url, "key")


def test_a_key_that_cannot_be_sent_is_refused_at_once_and_not_shown() -> None:
    with pytest.raises(ValueError, match="API key") as raised:
        Client("http://127.0.0.1:8000", "two words")
    assert "two words" not in str(raised.value)


def test_the_client_needs_nothing_of_the_server(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE], capture_output=True, text=True, timeout=90, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout) == (0, "alone\n"), ran.stderr
