"""The views for whoever looks with SQL say what the ledger says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import Job
from lucius.ledgers.sql import SqlLedger, documents, event_document, spec_document
from lucius.sql import ledger_views
from lucius.sql.database import Database, Fetch, Script
from lucius.testing.ledger_driver import LedgerDriver, ack, heartbeat, published, result
from lucius.testing.samples import ManualClock


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def test_fields_are_those_of_the_documents() -> None:
    assert spec_document.SpecDocument.__struct_fields__ == ledger_views.SPEC
    assert spec_document.StepSpecRecord.__struct_fields__ == ledger_views.STEP_SPEC
    assert documents.StateDocument.__struct_fields__ == ledger_views.STATE
    assert documents.StepRecord.__struct_fields__ == ledger_views.STEP
    assert documents.AttemptRecord.__struct_fields__ == ledger_views.ATTEMPT
    assert event_document.EventRecord.__struct_fields__ == ledger_views.EVENT
    assert event_document.STEP_STATUSES == ledger_views.STEP_STATUSES
    assert event_document.JOB_STATUSES == ledger_views.JOB_STATUSES


async def rows(database: Database, view: str, job: Job, order: str) -> list[dict[str, Any]]:
    def script() -> Script[list[dict[str, Any]]]:
        names = [column.rpartition(" AS ")[2].rpartition(".")[2].strip('"') for column in _columns(view)]
        listed = ", ".join(f'"{name}"' for name in names)
        found = yield Fetch(f"SELECT {listed} FROM {view} WHERE job_id = $1 ORDER BY {order}", [job.job_id])
        return [dict(zip(names, row, strict=True)) for row in found]

    return await database.read(script)


def _columns(view: str) -> list[str]:
    """The columns that the view is made of, parted where a comma is outside brackets."""
    [sql] = [one for one in ledger_views.LEDGER_VIEWS if one.startswith(f"CREATE VIEW {view} AS ")]
    selected, depth, columns = sql.partition(" AS SELECT ")[2], 0, [""]
    for place, sign in enumerate(selected):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and selected.startswith(" FROM ", place):
            break
        if sign == "," and depth == 0:
            columns.append("")
        else:
            columns[-1] += sign
    return [column.strip() for column in columns]


async def make_jobs(ledger: SqlLedger, clock: ManualClock) -> list[Job]:
    driver = LedgerDriver(ledger, clock)
    waiting = await driver.create(key="waiting")
    working = await driver.create(key="working", doc_id="d-1", traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    working = await driver.tell(working, published(working))
    working = await driver.tell(working, ack(working))
    working = await driver.tell(working, heartbeat(working, 0.25, "page 1"))
    again = await driver.create(key="again", deadline_seconds=86_400.0)
    again = await driver.tell(again, published(again))
    failed = result(again, Verdict.FAILED, retryable=True, error=Failure("BUSY", "try later"))
    again = await driver.tell(again, failed)
    clock.advance(1_000)
    again = await driver.tell(again, DeadlinePassed())
    broken = await driver.fail(await driver.create(key="broken"))
    large = await driver.create(key="large")
    text = Raw(b'{"text":"' + b"x" * 1_000 + b'"}')
    large = await driver.tell(large, published(large), result(large, artifacts=text, output_ref=Raw(b'"blob://o"')))
    done = await driver.succeed(await driver.create(key="done"))
    return [waiting, working, again, broken, large, done]


async def test_views_agree_with_the_ledger(database: Database, clock: ManualClock) -> None:
    async with SqlLedger(database) as ledger:
        for job in await make_jobs(ledger, clock):
            await check_job(database, job)
            await check_steps(database, job)
            await check_attempts(database, ledger, job)
            await check_events(database, ledger, job)


async def check_job(database: Database, job: Job) -> None:
    [row] = await rows(database, "jobs", job, "job_id")
    spec, routing = job.spec, job.spec.routing
    same = (
        "tenant_id", "request_type", "protocol_id", "protocol_version", "schema_version", "idempotency_key",
        "idempotency_hash", "doc_id", "correlation_id", "traceparent", "not_before", "deadline_at", "created_at",
        "redrive_of", "rules_version",
    )  # fmt: skip
    assert {name: row[name] for name in same} == {name: getattr(spec, name) for name in same}
    names = ("resolved_mode", "decision_source", "decision_reason", "routing_key_used", "lane")
    assert {name: row[name] for name in names} == {name: getattr(routing, name) for name in names}
    assert row["requested_mode"] == (routing.resolved_mode if routing.decision_source == "REQUEST" else None)
    assert json.loads(row["input_ref"]) == json.loads(bytes(spec.input_ref))
    same = ("status", "attempts_total", "updated_at", "completed_at", "wake_at", "engine", "revision")
    assert {name: row[name] for name in same} == {name: getattr(job, name) for name in same}
    assert row["current_step_id"] == job.current_step.spec.step_id
    assert row["current_step_index"] == job.current_index
    assert (row["error_code"], row["error_message"]) == (
        (job.error.code, job.error.message) if job.error else (None,) * 2
    )
    assert row["dead_letter"] == int(job.dead_letter)
    assert (row["wait_cause"] is None) == job.is_terminal
    assert (row["error_signature"] is None) == (job.status != "FAILED_FINAL")
    [index] = await rows(database, "job_index", job, "job_id")
    assert (index["idempotency_hash"], index["created_at"]) == (spec.idempotency_hash, spec.created_at)


async def check_steps(database: Database, job: Job) -> None:
    found = await rows(database, "steps", job, "step_index")
    assert [row["step_index"] for row in found] == list(range(len(job.steps)))
    for row, step in zip(found, job.steps, strict=True):
        same = ("step_id", "step_type", "service", "workspace_ref")
        assert {name: row[name] for name in same} == {name: getattr(step.spec, name) for name in same}
        same = (
            "status", "attempt_no", "attempts_counted", "due_at", "queue_until", "ends_by", "progress", "note",
            "created_at", "updated_at", "started_at", "completed_at",
        )  # fmt: skip
        assert {name: row[name] for name in same} == {name: getattr(step, name) for name in same}
        assert row["lease_id"] == (step.attempt.lease_id if step.attempt else None)
        assert row["lease_expires_at"] == (step.due_at if step.status == "PROCESSING" else None)
        assert row["lane"] == job.spec.routing.lane
        for name in ("artifacts", "output_ref"):
            assert json.loads(row[name] or "null") == json.loads(bytes(getattr(step, name)))
        assert row["last_error_code"] == (step.error.code if step.error else None)


async def check_attempts(database: Database, ledger: SqlLedger, job: Job) -> None:
    found = await rows(database, "attempts", job, "step_index, attempt_no")
    attempts = await ledger.attempts(job.job_id)
    expected = [(step.spec.step_id, one) for step in job.steps for one in attempts.get(step.spec.step_id, [])]
    assert len(found) == len(expected)
    same = (
        "attempt_no", "lease_id", "created_at", "status", "claimed_until", "sent_at", "acked_at", "acked_by",
        "ended_at", "verdict",
    )  # fmt: skip
    for row, (step_id, attempt) in zip(found, expected, strict=True):
        assert row["step_id"] == step_id
        assert {name: row[name] for name in same} == {name: getattr(attempt, name) for name in same}
        assert row["outbox_status"] == attempt.dispatch
        assert row["error_code"] == (attempt.error.code if attempt.error else None)
    outbox = await rows(database, "outbox", job, "created_at, attempt_no")
    assert {row["topic"] for row in outbox} <= {job.spec.routing.topic}
    assert {row["partition"] for row in outbox} <= {job.spec.routing.lane}
    assert sorted(row["outbox_id"] for row in outbox) == sorted(
        f"{job.job_id}:{step_id}:{attempt.attempt_no}" for step_id, attempt in expected
    )


async def check_events(database: Database, ledger: SqlLedger, job: Job) -> None:
    found = await rows(database, "events", job, "seq")
    events = await ledger.events(job.job_id, 0, 1_000)
    assert len(found) == len(events) == job.event_seq
    for row, event in zip(found, events, strict=True):
        assert (row["seq"], row["created_at"], row["event_type"]) == (event.seq, event.at, event.type)
        assert (row["step_id"], row["attempt_no"]) == (event.step_id, event.attempt_no)
        statuses = {name: row[name] for name in ("step_status", "job_status") if row[name] is not None}
        assert json.loads(row["payload"]) | statuses == event.data
