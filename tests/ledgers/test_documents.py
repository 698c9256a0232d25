"""What the SQL ledger writes of a job, and how little of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.attempt import Attempt, Failure, Verdict
from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import JobSpec
from lucius.ledgers.sql import SqlLedger, documents
from lucius.ledgers.sql.commit import commit_script
from lucius.ports.ledger import Change
from lucius.sql.database import Database, Fetch, Row, Run, Script
from lucius.testing.ledger_driver import LedgerDriver, ack, heartbeat, published, result
from lucius.testing.samples import ManualClock

LARGE = Raw(b'{"text":"' + b"x" * 65_536 + b'"}')


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


async def fetch(database: Database, sql: str, *args: Any) -> list[Row]:
    def script() -> Script[list[Row]]:
        return list((yield Fetch(sql, args)))

    return await database.read(script)


def written(change: Change) -> list[Run]:
    """The statements by which a change of a job that has not moved is written."""
    script = commit_script([change], None, False, {})
    runs: list[Run] = []
    try:
        statement = next(script)
        while True:
            if isinstance(statement, Run):
                runs.append(statement)
            statement = script.send([])
    except StopIteration:
        return runs


def size(rows: Sequence[Sequence[Any]]) -> int:
    return sum(len(str(value).encode()) for row in rows for value in row if value is not None)


def test_fields_of_records_are_those_of_the_domain() -> None:
    assert documents.AttemptRecord.__struct_fields__ == Attempt.__struct_fields__
    assert "rules_version" not in JobSpec.__struct_defaults__, "a default that changes would change jobs in flight"


async def test_heartbeat_writes_little_however_large_the_artifacts_are(
    sqlite_database: Database, clock: ManualClock
) -> None:
    async with SqlLedger(sqlite_database) as ledger:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(steps=["ocr", "embedding", "sis", "index"])
        for _ in range(3):
            job = await driver.tell(job, published(job), ack(job), result(job, artifacts=LARGE))
        job = await driver.tell(job, published(job), ack(job))
        job = await driver.read(job)
        runs = written(driver.change(job, heartbeat(job, 0.5, "half of it")))
        assert runs
        assert sum(size(run.rows) for run in runs) <= 2_048
        assert [bytes(step.artifacts) for step in job.steps[:3]] == [bytes(LARGE)] * 3


async def test_turn_that_only_moves_a_job_assigns_no_indexed_column(
    sqlite_database: Database, clock: ManualClock
) -> None:
    async with SqlLedger(sqlite_database) as ledger:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        job = await driver.tell(job, published(job), ack(job))
        moving, ending = written(driver.change(job, heartbeat(job, 0.5))), written(driver.change(job, result(job)))
        assert [" status = " in run.sql for run in moving if "job_states" in run.sql] == [False]
        assert [" status = " in run.sql for run in ending if "job_states" in run.sql] != [False]


async def test_attempt_that_ended_and_was_followed_in_one_turn_is_kept_as_it_ended(
    database: Database, clock: ManualClock
) -> None:
    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(deadline_seconds=86_400.0)
        job = await driver.tell(job, published(job), ack(job))
        failed = result(job, Verdict.FAILED, retryable=True, error=Failure("BUSY", "try later"))
        ended = driver.change(job, failed).after
        clock.advance(3_600)
        follow = driver.change(ended, DeadlinePassed())
        past = ended.current_step.attempt
        assert past is not None
        both = replace(driver.change(job, failed), after=follow.after, past_attempts=((0, past),))
        await driver.write(both)
        first, second = (await ledger.attempts(job.job_id))["ocr"]
        failure = Failure("BUSY", "try later", instance="instance-1")
        assert (first.verdict, first.error) == (Verdict.FAILED, failure)
        assert second.attempt_no == 2


async def test_policies_are_stored_once(database: Database, clock: ManualClock) -> None:
    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        for _ in range(3):
            await driver.create()
    assert [row[0] for row in await fetch(database, "SELECT COUNT(*) FROM policies")] == [1]
    async with SqlLedger(database) as again:  # It knows of none yet.
        job = await LedgerDriver(again, clock).create()
        assert (await again.load([job.job_id]))[job.job_id] == job
    assert [row[0] for row in await fetch(database, "SELECT COUNT(*) FROM policies")] == [1]


async def test_jobs_are_counted_by_minute_tenant_and_outcome(database: Database, clock: ManualClock) -> None:
    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        minute = clock.now() // 60_000
        for tenant in ("acme", "acme", "globex"):
            await driver.create(tenant_id=tenant)
        failing = await driver.create(tenant_id="acme")
        clock.advance(120)
        await driver.fail(failing)
        await driver.succeed(await driver.create(tenant_id="globex"))
    found = await fetch(database, "SELECT minute, tenant_id, outcome, jobs FROM job_counts ORDER BY 1, 2, 3")
    assert [tuple(row) for row in found] == [
        (minute, "acme", "ACCEPTED", 3),
        (minute, "globex", "ACCEPTED", 1),
        (minute + 2, "acme", "FAILED_FINAL", 1),
        (minute + 2, "globex", "ACCEPTED", 1),
        (minute + 2, "globex", "SUCCEEDED", 1),
    ]


async def test_causes_and_signatures_have_columns(database: Database, clock: ManualClock) -> None:
    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        waiting = await driver.create()
        working = await driver.create()
        await driver.tell(working, published(working), ack(working))
        broken = await driver.fail(await driver.create())
    columns = "SELECT job_id, wait_cause, error_signature FROM job_states"
    found = {row[0]: tuple(row)[1:] for row in await fetch(database, columns)}
    assert found[waiting.job_id] == ("BUS", None)
    assert found[working.job_id] == ("RESULT", None)
    assert found[broken.job_id] == (None, "OCR_EMBEDDING_SIS/1/ocr/BROKEN: it broke")


@pytest.mark.parametrize("progress_at", ["", ",4"], ids=["before progress_at", "with progress_at"])
def test_documents_of_this_version_stay_readable(progress_at: str) -> None:
    """As a ledger of this version holds them: a change that cannot read these cannot read what is stored."""
    state = (
        '{"current_index":0,"attempts_total":1,"event_seq":3,"steps":[["PROCESSING",5,1,[1,"lease",1,"PROCESSING","SENT"'
        ',9,2,3,"one",null,null,{"code":"C","message":"m"}],30,null,40,0.5,"half",null,3,null,{"a":1},null,false'
        + progress_at
        + "]],"
        '"error":{"code":"E","message":"x"},"dead_letter":true,"callbacks_recorded":["0/1/ACK/DUPLICATE"]}'
    )
    read = documents.decode_state(state)
    written = msgspec.json.decode(msgspec.json.encode(read))
    if not progress_at:
        assert written["steps"][0].pop() is None
    assert written == msgspec.json.decode(state)
    events = (
        '[100,[[1,0,"ACCEPTED",null,null,null,"QUEUED"],[2,5,"PUBLISHED","ocr",1,"INITIATED","IN_PROGRESS",{"a":1}]]]'
    )
    first, second = documents.read_events(events)
    assert (first.at, second.at, second.data["a"], second.data["job_status"]) == (100, 105, 1, "IN_PROGRESS")
    assert documents.encode_events([first, second]) == events
