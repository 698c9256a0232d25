"""What the SQL ledger writes of a job, and how little of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.attempt import Attempt, Failure, Verdict
from lucius.domain.inputs import Accepted, DeadlinePassed
from lucius.domain.job import JobSpec, JobStatus
from lucius.domain.step import StepStatus
from lucius.ledgers.sql import SqlLedger, documents, event_document, spec_document, statements
from lucius.ledgers.sql.commit import commit_script
from lucius.ports.ledger import Change
from lucius.sql import schema
from lucius.sql.database import Database, Fetch, Row, Run, Script
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_driver import LedgerDriver, ack, heartbeat, published, result
from lucius.testing.samples import ManualClock, job_spec, step_spec

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
    in_columns = {"job_id", "tenant_id", "request_type", "routing"}
    of_routing = {"decision_source", "decision_reason", "routing_key_used", "lane"}
    own = {"workspaces", "steps"}
    fields = set(spec_document.SpecDocument.__struct_fields__)
    assert fields - own - of_routing == set(JobSpec.__struct_fields__) - in_columns
    assert spec_document.SpecDocument.__struct_fields__[statements.HASH_PLACE] == "idempotency_hash"
    assert tuple(StepStatus) == event_document.STEP_STATUSES, "a new status goes last"
    assert tuple(JobStatus) == event_document.JOB_STATUSES, "a new status goes last"
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


async def test_jobs_are_counted_by_minute_and_hour_tenant_and_outcome(database: Database, clock: ManualClock) -> None:
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
    hour = -(minute // 60)
    assert (minute + 2) // 60 == -hour, "all in one hour"
    assert [tuple(row) for row in found] == [
        (hour, "acme", "ACCEPTED", 3),
        (hour, "acme", "FAILED_FINAL", 1),
        (hour, "globex", "ACCEPTED", 2),
        (hour, "globex", "SUCCEEDED", 1),
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
        '[0,1,3,[["PROCESSING",5,1,[1,"lease",1,"PROCESSING","SENT",9,2,3,"one",null,null,{"code":"C","message":"m"}],'
        '30,null,40,0.5,"half",null,3,null,{"a":1},null,false'
        + progress_at
        + ']],{"code":"E","message":"x"},true,["0/1/ACK/DUPLICATE"]]'
    )
    read = documents.decode_state(state)
    written = msgspec.json.decode(msgspec.json.encode(read))
    assert written[3][0][3].pop() is False, "whether an attempt is held came later"
    if not progress_at:
        assert written[3][0].pop() is None
    assert written == msgspec.json.decode(state)
    sound = documents.decode_state("[0,1,3,[]]")
    assert (sound.error, sound.dead_letter, sound.callbacks_recorded) == (None, False, ())
    events = '[100,[[0,"ACCEPTED",null,null,null,0],[5,"PUBLISHED","ocr",1,2,2,{"a":1}]]]'
    first, second = event_document.read_events(7, events)
    assert (first.seq, first.at, second.seq, second.at, second.data["a"]) == (6, 100, 7, 105, 1)
    assert (first.data, second.data["step_status"]) == ({"job_status": "QUEUED"}, "INITIATED")
    assert second.data["job_status"] == "IN_PROGRESS"
    assert event_document.encode_events([first, second]) == events
    spec = (
        '[100,900,"1",null,1,3,"REQUEST","asked","acme",5,"blob://in",{"uri":"o"},"key","hash","blob://w/acme/1/",'
        '[["ocr","OCR","ocr","policy","OCR",{"a":1}],["sis","SIS","sis","policy","SIS",{},150]],null,"d-1",null,null,'
        'null,{"done":"https://done"}]'
    )
    document = spec_document.decode_spec(spec)
    accepted = spec_document.read_spec(document, "job", "acme", "OCR_SIS", "DEFAULT")
    assert (accepted.protocol_id, accepted.correlation_id, accepted.routing.resolved_mode) == (
        "OCR_SIS", "job", "DEFAULT",
    )  # fmt: skip
    assert (accepted.doc_id, accepted.callback_urls) == ("d-1", {"done": "https://done"})
    assert [step.created_at for step in document.steps] == [None, 150]


@pytest.mark.parametrize(
    ("refs", "shared"),
    [
        (["b://w/1/A", "b://w/1/B"], "b://w/1/"),
        (["b://w/1/A"], "b://w/1/"),
        (["b://w/1/A", "b://v/1/A"], ""),
        (["A"], ""),
    ],
)
def test_workspaces_share_a_folder_or_nothing(refs: list[str], shared: str) -> None:
    assert spec_document.shared_beginning(refs) == shared


async def test_whatever_differs_from_the_usual_is_kept(database: Database, clock: ManualClock) -> None:
    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        spec = job_spec(
            clock, protocol_id="OTHER", traceparent="00-1-2-01", not_before=clock.now() + 5, redrive_of="old",
            callback_urls={"done": "https://done"}, doc_id="d",
        )  # fmt: skip
        steps = tuple(replace(step_spec(name), workspace_ref=f"{name}://work") for name in ("ocr", "sis"))
        creation = driver.creation(fact=Accepted(spec, steps))
        late = tuple(replace(step, created_at=step.created_at + 7) for step in creation.after.steps)
        job = await driver.write(replace(creation, after=replace(creation.after, steps=late)))
        plain = await driver.write(driver.creation(fact=_plain(clock)))
        for one in (job, plain):
            assert await driver.read(one) == one


def _plain(clock: ManualClock) -> Accepted:
    """A command as most are: nothing is given that need not be."""
    spec = job_spec(clock)
    return Accepted(replace(spec, correlation_id=spec.job_id), (step_spec("ocr"),))


BYTES_A_JOB_MAX = 4_000


async def test_finished_job_takes_few_bytes_with_every_index(tmp_path: Path, clock: ManualClock) -> None:
    """As the benchmark's jobs: three steps, ACK and RESULT in one turn, refs that hold an id."""
    jobs = 300
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await schema.upgrade(database)
        async with SqlLedger(database) as ledger:
            empty = await _bytes_used(database)
            driver = LedgerDriver(ledger, clock)
            for number in range(jobs):
                job = await driver.write(driver.creation(fact=_as_in_the_benchmark(clock, f"{uuid4().hex}-{number}")))
                while not job.is_terminal:
                    job = await driver.tell(job, published(job), ack(job), result(job, artifacts=Raw(b"{}")))
            assert (await _bytes_used(database) - empty) / jobs <= BYTES_A_JOB_MAX


def _as_in_the_benchmark(clock: ManualClock, name: str) -> Accepted:
    spec = job_spec(
        clock, tenant_id="bench-01", key=name, schema_version="1", input_ref=Raw(f'"https://example.invalid/in/{name}.pdf"'.encode()),
        output_ref=Raw(f'"https://example.invalid/out/{name}.json"'.encode()),
    )  # fmt: skip
    folder = f"file:///srv/lucius/data/workspace/bench-01/{spec.job_id}"
    steps = tuple(
        replace(step_spec(one, payload=b"{}"), workspace_ref=f"{folder}/{one.upper()}")
        for one in ("ocr", "embedding", "sis")
    )
    return Accepted(replace(spec, correlation_id=spec.job_id), steps)


async def _bytes_used(database: Database) -> int:
    counts = "SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)"
    return int((await fetch(database, counts))[0][0]) * 4_096
