"""A full disk, a locked database, a ledger out of reach: 503, nothing half written, and all well afterwards."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from lucius.ports.ledger import LedgerUnavailable

OK_AGAIN_SECONDS_MAX = 20.0


class File(apsw.VFSFile):
    def xWrite(self, data: bytes, offset: int) -> None:
        if Disk.is_full:
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)


class Disk(apsw.VFS):
    """The real file system, until a test says that it is full."""

    is_full = False

    def __init__(self) -> None:
        super().__init__("lucius-test-disk", "unix")

    def xOpen(self, name: Any, flags: Any) -> File:
        return File("unix", name, flags)

    @staticmethod
    def fill() -> None:
        Disk.is_full = True

    @staticmethod
    def empty() -> None:
        Disk.is_full = False


DISK = Disk()
"""Stays registered while the process lives: connections must not outlive it."""


@pytest.fixture
def disk() -> Iterator[Disk]:
    """What SQLite opens its files on while a test runs."""
    apsw.set_default_vfs("lucius-test-disk")
    yield DISK
    Disk.is_full = False
    apsw.set_default_vfs("unix")


class Trouble:
    """A way to take the ledger away, and give it back."""

    def __init__(self, api: Any, kind: str) -> None:
        self.api = api
        self.kind = kind

    @contextmanager
    def made(self) -> Iterator[None]:
        path = Path(self.api.context.settings.data) / "lucius.db"
        if self.kind == "locked":
            other = apsw.Connection(str(path))
            other.set_busy_timeout(5_000)  # The server itself may be at a commit.
            other.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                other.execute("ROLLBACK")
                other.close()
        elif self.kind == "full disk":
            Disk.is_full = True
            try:
                yield
            finally:
                Disk.is_full = False
        else:
            connection = self.api.context.ledger._database._writer._connection
            maximum = connection.execute("PRAGMA max_page_count").get
            pages = connection.execute("PRAGMA page_count").get
            connection.execute(f"PRAGMA max_page_count = {pages}")
            try:
                yield
            finally:
                connection.execute(f"PRAGMA max_page_count = {maximum}")


@pytest.fixture(params=["locked", "full disk", "full file"])
async def trouble(request: pytest.FixtureRequest, disk: Disk, open_api: Any) -> Trouble:
    return Trouble(await open_api(), request.param)


def large(api: Any) -> dict[str, Any]:
    """A command that needs new pages, wherever it is written."""
    envelope: dict[str, Any] = api.envelope(input_ref={"uri": "https://documents.example/1", "text": "x" * 60_000})
    return envelope


async def test_command_is_refused_whole_and_taken_afterwards(trouble: Trouble) -> None:
    api, envelope = trouble.api, large(trouble.api)
    with trouble.made():
        for _ in range(2):
            api.assert_problem(await api.submit(envelope), 503, "UNAVAILABLE")
        results = await api.client.post("/v1/commands:batch", json={"commands": [large(api), api.envelope(payload=3)]})
        assert [result["code"] for result in results.json()["results"]] == ["UNAVAILABLE", "ENVELOPE_INVALID"]
        assert await api.count() == 0, "reading goes on"
        assert await api.pull(wait_seconds=0) == [], "no directive of a job that is not"
    answer = await api.submit(envelope)
    assert (answer.status_code, answer.json()["replayed"]) == (202, False)
    await api.work()
    assert (await api.job(answer.json()["jobId"]))["status"] == "SUCCEEDED"
    tenants = (await api.client.get("/v1/admin/tenants")).json()
    assert tenants["inflight"] == 0, "no slot leaked"
    assert await api.count() == 1


async def test_callback_is_refused_whole_and_applied_afterwards(trouble: Trouble) -> None:
    api = trouble.api
    job_id = await api.accepted(api.envelope_of_three())
    directive = await api.take()
    before = await api.events(job_id)
    with trouble.made():
        for _ in range(2):
            api.assert_problem(await api.result(directive, artifacts="x" * 60_000), 503, "UNAVAILABLE")
        ids = {name: directive[name] for name in directive if name != "type"}
        item = {"type": "RESULT", "status": "SUCCEEDED", "artifacts": "x" * 60_000, **ids}
        outcomes = (await api.client.post("/v1/callbacks:batch", json={"callbacks": [item]})).json()["outcomes"]
        assert [outcome["code"] for outcome in outcomes] == ["UNAVAILABLE"]
        assert await api.pull("embedding", wait_seconds=0) == []
        assert (await api.job(job_id))["current_step_id"] == "ocr"
    assert await api.events(job_id) == before, "nothing is half written"
    assert (await api.result(directive, artifacts="x" * 60_000)).json()["outcome"] == "APPLIED"
    assert (await api.take("embedding"))["previous"] == {"ocr": "x" * 60_000}


async def test_operations_are_refused_whole(api: Any) -> None:
    job_id = await api.accepted()
    with Trouble(api, "locked").made():
        for verb in ("pause", "cancel"):
            api.assert_problem(await api.operate(job_id, verb), 503, "UNAVAILABLE")
    assert (await api.job(job_id))["status"] == "IN_PROGRESS"
    assert (await api.operate(job_id, "pause")).json()["status"] == "PAUSED"


@pytest.mark.parametrize("trouble", ["locked", "full disk"], indirect=True)
async def test_readiness_names_the_ledger_until_it_can_be_written(trouble: Trouble) -> None:
    api = trouble.api
    _, _, checks = await api.readiness()
    assert checks["ledger"]["detail"].startswith("SQLite file")
    with trouble.made():
        await api.submit()
        for _ in range(2):
            code, status, checks = await api.readiness()
            assert (code, status) == (503, "unavailable")
            assert (checks["ledger"]["ok"], "SQLite" in checks["ledger"]["detail"]) == (False, True)
            ready = await api.client.get("/readyz")
            assert (ready.status_code, ready.json()) == (503, {"status": "unavailable"}), "the main port says no more"
        for health in (await api.client.get("/healthz"), await api.look("/healthz")):
            assert health.status_code == 200
        metrics = await api.look("/metrics")
        assert metrics.status_code == 200
        assert 'lucius_commands_refused_total{code="UNAVAILABLE"}' in metrics.text
    async with asyncio.timeout(OK_AGAIN_SECONDS_MAX):  # What else was late meanwhile is looked at again as well.
        while (await api.readiness())[:2] != (200, "ok"):
            await asyncio.sleep(0.05)
    ready = await api.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok"})


async def test_every_read_says_unavailable_when_the_ledger_cannot_be_read(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await api.accepted()

    async def broken(*arguments: object, **options: object) -> None:
        raise LedgerUnavailable("the database is out of reach")

    for name in ("load", "jobs", "attempts", "events", "outbox", "inflight", "find_claim"):
        monkeypatch.setattr(api.context.ledger, name, broken)
    for path in (
        "/v1/jobs", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}?wait_seconds=1", f"/v1/jobs/{job_id}/steps",
        f"/v1/jobs/{job_id}/events", "/v1/admin/outbox", "/v1/admin/dead-letters", "/v1/admin/tenants",
    ):  # fmt: skip
        api.assert_problem(await api.client.get(path), 503, "UNAVAILABLE")
    for verb in ("cancel", "pause", "resume", "redrive"):
        api.assert_problem(await api.operate(job_id, verb), 503, "UNAVAILABLE")
    assert (await api.look("/metrics")).status_code == 200


async def test_full_queue_of_inputs_says_unavailable(open_api: Any) -> None:
    api = await open_api(queue_inputs_max=5)
    answers = await asyncio.gather(*(api.submit() for _ in range(60)))
    assert {answer.status_code for answer in answers} == {202, 503}
    for answer in answers:
        if answer.status_code == 503:
            api.assert_problem(answer, 503, "UNAVAILABLE")
    assert await api.count() == sum(answer.status_code == 202 for answer in answers)


async def test_second_owner_of_the_file_is_refused_by_name(api: Any, open_api: Any) -> None:
    from lucius.sql.database import DatabaseUnavailable

    with pytest.raises(DatabaseUnavailable, match=r"lucius\.db is owned by process \d+"):
        await open_api()


# --- What is logged --------------------------------------------------------------------------------------------------

DUE_JOBS = 60
SWEEPS = 10


@pytest.mark.parametrize("bus", ["sql", "memory"])
async def test_full_disk_is_logged_when_it_begins_and_when_it_ends(
    bus: str, disk: Disk, open_api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    caplog.set_level(logging.WARNING)
    api = await open_api(bus=bus, outbox_retry_interval=0.02)
    for _ in range(DUE_JOBS):
        await api.accepted()
    sweeps = 0
    due = api.context.ledger.due

    async def counted_due(*args: Any) -> Any:
        nonlocal sweeps
        sweeps += 1
        return await due(*args)

    api.context.ledger.due = counted_due
    disk.fill()
    api.clock.shift_seconds = 600  # Every ack deadline has passed, and each job has something to be written.
    async with asyncio.timeout(60):
        while sweeps < SWEEPS:
            await asyncio.sleep(0.02)
    disk.empty()
    async with asyncio.timeout(60):
        while "recovered after" not in caplog.text:
            await asyncio.sleep(0.02)
    gc.collect()
    await asyncio.sleep(0)
    assert unhandled == []
    said = [record.getMessage() for record in caplog.records if record.name.startswith("lucius")]
    assert [len([text for text in said if word in text]) for word in ("are counted", "recovered after")] == [1, 1], said
    assert len(said) <= 3, said
