"""Every method of the client against a real server: what it answers is what the models expect."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.crash.processes import API_KEY, Process, free_port

from lucius.client import AsyncClient, Client, Conflict, Job, envelope
from lucius.client.call import Call, Json
from lucius.client.calls import services
from lucius.client.client import Admin, Batches, Operations, Runbooks
from lucius.client.errors import NotFound, Refused, content_of

RUNBOOK = """\
name: move
data_source: {type: manual, primary_key: Upn}
phases:
  - name: only
    offset: T-0
    steps:
      - {name: first, worker_id: exchange, function: First, params: {Upn: "{{Upn}}"}}
"""
CHANGED = RUNBOOK.replace("function: First", "function: Other")


class Recorder:
    """Passes calls through, and remembers which methods were used."""

    def __init__(self, inner: Any, used: set[str], prefix: str = "") -> None:
        self._inner, self._used, self._prefix = inner, used, prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if isinstance(found, Runbooks | Batches | Admin | Operations):
            return Recorder(found, self._used, f"{name}.")
        self._used.add(self._prefix + name)
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("live")
    words = ("up", "--no-services", "--data", str(folder / "data"))
    with Process(*words, settings={"LUCIUS_LOG_LEVEL": "WARNING"}, folder=folder, port=free_port()) as process:
        yield f"http://127.0.0.1:{process.port}"


def command(name: str, **fields: Any) -> dict[str, Any]:
    refs = {one: f"https://files.example/{name}/{one}" for one in ("input_ref", "output_ref")}
    return {"tenant_id": "acme", "request_type": "OCR", "payload": {}, **refs, **fields}


def every_method() -> set[str]:
    kinds: list[tuple[str, type]] = [("", Client), ("runbooks.", Runbooks), ("batches.", Batches), ("admin.", Admin)]
    kinds.append(("operations.", Operations))
    return {
        f"{prefix}{name}"
        for prefix, kind in kinds
        for name in dir(kind)
        if not name.startswith("_") and name != "close"
    }


def test_every_method_reads_what_a_real_server_answers(server: str) -> None:
    used: set[str] = set()
    with Client(server, API_KEY) as client:
        recorder = Recorder(client, used)
        _jobs(recorder, client)
        _runbooks(recorder)
        _batches(recorder)
        _operations(recorder)
        assert recorder.admin.lanes()["items"] is not None
        assert recorder.admin.tenants()["items"] is not None
        assert {one["name"] for one in recorder.admin.workers()["items"]} >= {"ocr"}
        assert "/console/sign-in/" in recorder.admin.console_link()["url"]
        assert "messages" in recorder.admin.dead_letters(limit=5)
        assert recorder.admin.notifications(status="PENDING")["items"] == []
        assert recorder.admin.prune(10**9)["jobs"] == 0
        with pytest.raises(NotFound):
            recorder.admin.archived("018f6b1e-7c00-7000-8000-0123456789ab")
        with pytest.raises(NotFound):
            recorder.admin.notification("018f6b1e7c00-1")
        with pytest.raises(NotFound):
            recorder.admin.send_test("nobody", tenant="nobody")
        with pytest.raises(Refused, match="JOB_NOT_FOUND"):
            recorder.admin.dismiss("018f6b1e-7c00-7000-8000-0123456789ab", reason="because")
    assert used >= every_method(), every_method() - used


def _jobs(client: Any, real: Client) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    first = client.submit(**command("first", correlation_id="c-1", doc_id="d-1"), idempotency_key="first")
    again = client.submit(**command("first", correlation_id="c-1", doc_id="d-1"), idempotency_key="first")
    assert (again.job_id, first.replayed, again.replayed) == (first.job_id, False, True)
    good, bad = envelope(**command("many", not_before=later)), envelope(**command("bad", request_type="NONE"))
    taken, refused = client.submit_many([good, bad])
    assert (taken.code, refused.job_id, refused.code) == (None, None, "REQUEST_TYPE_UNKNOWN")
    assert client.validate(good).valid
    assert [one.pointer for one in client.validate(bad).faults] == ["/request_type"]
    _fail(real)
    failed = client.wait(first.job_id, timeout_seconds=60.0)
    assert (failed.status, failed.error.code, failed.correlation_id) == ("FAILED_FINAL", "BAD_INPUT", "c-1")
    assert client.get(first.job_id) == failed
    (step,) = client.steps(first.job_id)
    assert client.command(first.job_id)["tenant_id"] == failed.tenant_id
    assert (step.status, step.attempts[0].attempt_no, step.attempts[0].acked_at is not None) == (
        "FAILED_FINAL",
        1,
        True,
    )
    trail = client.events(first.job_id)
    assert [one.type for one in trail] == [one.type for one in client.follow(first.job_id, timeout_seconds=60.0)]
    assert {first.job_id, taken.job_id} == {job.job_id for job in client.jobs(tenant_id="acme")}
    redriven = client.redrive(first.job_id, reason="wrong language", payload={"language": "de"})
    assert redriven.redrive_of == first.job_id
    assert client.command(redriven.job_id)["payload"] == {"language": "de"}
    assert client.pause(taken.job_id).status == "PAUSED"
    assert client.resume(taken.job_id).status != "PAUSED"
    with pytest.raises(Conflict):
        client.resume(taken.job_id)
    assert client.cancel(taken.job_id, reason="enough").status == "CANCELLED"
    assert "OCR" in {one.id for one in client.protocols()}
    assert client.protocol("OCR").steps


def _operations(client: Any) -> None:
    operations = client.operations
    job = client.submit(**command("for-operations"))
    assert [one.job_id for one in operations.preview("pause", request_type="OCR", tenant_id="acme").sample][-1:] == [
        job.job_id
    ]
    made = operations.create("cancel", reason="a test", tenant_id="acme", canary=1, idempotency_key="once")
    again = operations.create("cancel", reason="a test", tenant_id="acme", canary=1, idempotency_key="once")
    assert again.operation_id == made.operation_id
    ended = operations.wait(made.operation_id, timeout_seconds=60.0)
    assert (ended.status, ended.has_ended, ended.has_stopped) == ("COMPLETED", True, False)
    assert ended.jobs == ended.succeeded > 0
    assert ended.events[0].reason == "a test"
    assert job.job_id in {one.job_id for one in operations.outcomes(made.operation_id, status="SUCCEEDED")}
    slow = operations.create("redrive", reason="slowly", status="CANCELLED", rate_per_second=0.01)
    assert operations.pause(slow.operation_id).status == "PAUSED"
    assert operations.resume(slow.operation_id, reason="go on").status in ("SELECTING", "RUNNING")
    assert operations.abandon(slow.operation_id).status == "ABANDONED"
    assert operations.get(slow.operation_id).has_ended
    assert [one.operation_id for one in operations.list()] == [slow.operation_id, made.operation_id]


def _fail(client: Client) -> None:
    """Play the service for one directive."""
    (directive,) = _ask(client, services.pull_directives("ocr", 1, 20.0))["directives"]
    ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    failure = {"failure_class": "NON_RETRYABLE", "error": {"code": "BAD_INPUT", "message": "it is empty"}}
    for kind, body in (("ACK", ids), ("RESULT", {**ids, "status": "FAILED", **failure})):
        assert _ask(client, services.call_back(kind, body, directive["callback_token"]))["outcome"] == "APPLIED"


def _ask(client: Client, call: Call) -> Json:
    return content_of(client._session.transport.send(call))


def _runbooks(client: Any) -> None:
    runbooks = client.runbooks
    assert runbooks.validate(RUNBOOK).valid
    assert [one.line for one in runbooks.validate("name: [").faults]
    assert runbooks.publish(RUNBOOK).published
    assert not runbooks.publish(RUNBOOK).published
    assert runbooks.publish(CHANGED).version == 2
    assert [(one.name, one.version) for one in runbooks.list()] == [("move", 2)]
    shown = runbooks.get("move", version=1)
    assert (shown.yaml, [one.version for one in shown.versions]) == (RUNBOOK, [2, 1])
    assert runbooks.diff("move", 1, 2)["differences"]
    assert runbooks.events("move").items[0].kind
    assert runbooks.stop("move")["automation"] is False
    assert runbooks.start("move")["automation"] is True
    assert runbooks.dry_run("move", csv="Upn\nann\n")["total_members"] == 1
    for refused in (runbooks.confirm, runbooks.preview):
        with pytest.raises(Conflict):
            refused("move")


def _batches(client: Any) -> None:
    batches = client.batches
    made = batches.create("move", "Upn\nann\nbob\n", advance="manual")
    assert made.members == 2
    assert batches.get(made.batch_id).members["active"] == 2
    assert [one.batch_id for one in batches.list(runbook="move")] == [made.batch_id]
    assert batches.grid(made.batch_id)["member_keys"] == ["ann", "bob"]
    assert batches.add(made.batch_id, "Upn\ncarl\n")["members"] == 1
    assert batches.remove(made.batch_id, ["bob"])["removed"] == 1
    start = "2030-03-01T08:00:00Z"
    assert [one["phase"] for one in batches.reschedule(made.batch_id, start, dry_run=True)["moved"]] == ["only"]
    assert batches.reschedule(made.batch_id, start, reason="moved")["start"].startswith("2030-03-01T08:00:00")
    assert batches.pause(made.batch_id, reason="wait")["status"] == "active"
    assert batches.get(made.batch_id).pause_reason
    assert batches.resume(made.batch_id)["held"] is False
    assert batches.advance(made.batch_id)["phase"] == "only"
    assert [(one.member, one.steps[0].step) for one in batches.members(made.batch_id, status="active")] == [
        ("ann", "first"),
        ("carl", "first"),
    ]
    for refused in (
        batches.resume,
        batches.keep,
        batches.confirm_move,
        lambda number: batches.retry(number, ["ann"]),
        lambda number: batches.approve(number, "only"),
        lambda number: batches.refuse(number, "only"),
    ):
        with pytest.raises(Conflict):
            refused(made.batch_id)
    assert batches.send_again(made.batch_id)["sent"] == []
    assert batches.export(made.batch_id).startswith(b'"member"')
    assert batches.events(made.batch_id).items[0].batch_id == made.batch_id
    other = batches.create("move", "Upn\ndora\n", advance="manual")
    batches.cancel(other.batch_id, reason="enough")
    assert batches.wait(other.batch_id, timeout_seconds=60.0).status == "failed"
    assert client.runbooks.retire("move")["retired"] is not None


async def test_the_async_client_reads_the_same(server: str, tmp_path: Path) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    async with AsyncClient(server, API_KEY) as client:
        accepted = await client.submit(**command(tmp_path.name, not_before=later))
        job: Job = await client.get(accepted.job_id)
        assert job.waiting_on is not None
        assert job.waiting_on.what == "START"
        await client.cancel(accepted.job_id)
        assert (await client.wait(accepted.job_id, timeout_seconds=60.0)).status == "CANCELLED"
        assert [one.type async for one in client.follow(accepted.job_id, timeout_seconds=60.0)][-1] == "JOB_CANCELLED"
        assert (await client.batches.list()).next is None
