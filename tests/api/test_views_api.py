"""Whoever looks with SQL sees what the API answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lucius.domain.time import iso
from lucius.sql.database import Fetch, Script


@pytest.fixture(params=["sqlite", "postgres"])
def sql_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {} if request.param == "sqlite" else {"ledger": request.getfixturevalue("postgres_url")}


async def select(api: Any, columns: str, view: str, job_id: str, order: str) -> list[dict[str, Any]]:
    names = columns.split()

    def script() -> Script[list[dict[str, Any]]]:
        listed = ", ".join(f'"{name}"' for name in names)
        found = yield Fetch(f"SELECT {listed} FROM {view} WHERE job_id = $1 ORDER BY {order}", [job_id])
        return [dict(zip(names, row, strict=True)) for row in found]

    result: list[dict[str, Any]] = await api.context.runbooks.turns.database.read(script)
    return result


def moment(value: int | None) -> str | None:
    return None if value is None else iso(value)


async def test_views_show_what_the_api_answers(sql_settings: dict[str, str], open_api: Callable[..., Any]) -> None:
    api = await open_api(**sql_settings)
    await api.accepted(api.envelope_of_three())
    (directive,) = await api.pull("ocr")
    await api.ack(directive)
    await api.result(directive, artifacts={"text": "x" * 1_000})
    job_id = directive["jobId"]
    (second,) = await api.pull("embedding")
    await api.ack(second)
    job = (await api.client.get(f"/v1/jobs/{job_id}")).json()

    same = (
        "tenant_id request_type protocol_id protocol_version engine status current_step_id attempts_total"
        " idempotency_key idempotency_hash correlation_id doc_id redrive_of requested_mode"
        " decision_source decision_reason routing_key_used lane"
    )
    (row,) = await select(
        api, f"{same} resolved_mode input_ref created_at updated_at deadline_at", "jobs", job_id, "job_id"
    )
    assert {name: row[name] for name in same.split()} == {name: job[name] for name in same.split()}
    assert row["resolved_mode"] == job["mode"]
    assert json.loads(row["input_ref"]) == job["input_ref"]
    for name in ("created_at", "updated_at", "deadline_at"):
        assert moment(row[name]) == job[name]

    steps = (await api.client.get(f"/v1/jobs/{job_id}/steps")).json()["steps"]
    same = "step_type service status attempt_no lease_id progress note decision_source decision_reason lane"
    rows = await select(
        api,
        f"{same} step_id lease_expires_at started_at completed_at artifacts input_ref",
        "steps",
        job_id,
        "step_index",
    )
    assert len(rows) == len(steps)
    for row, step in zip(rows, steps, strict=True):
        assert {name: row[name] for name in same.split()} == {name: step[name] for name in same.split()}
        assert row["step_id"] == step["stepId"]
        for name in ("lease_expires_at", "started_at", "completed_at"):
            assert moment(row[name]) == step[name]
        assert json.loads(row["artifacts"] or "null") == step["artifacts"]
        assert json.loads(row["input_ref"]) == step["input_ref"]

    attempts = [(step["stepId"], attempt) for step in steps for attempt in step["attempts"]]
    same = "attempt_no lease_id status acked_by outbox_status decision_source decision_reason routing_key_used lane"
    rows = await select(api, f"{same} step_id sent_at acked_at ended_at", "attempts", job_id, "step_index, attempt_no")
    assert [row["step_id"] for row in rows] == [step_id for step_id, _ in attempts] == ["ocr", "embedding"]
    for row, (_, attempt) in zip(rows, attempts, strict=True):
        assert {name: row[name] for name in same.split()} == {name: attempt[name] for name in same.split()}
        for name in ("sent_at", "acked_at", "ended_at"):
            assert moment(row[name]) == attempt[name]

    events = await api.events(job_id)
    rows = await select(api, "seq created_at event_type step_id attempt_no job_status", "events", job_id, "seq")
    assert [(row["seq"], moment(row["created_at"]), row["event_type"], row["step_id"]) for row in rows] == [
        (event["seq"], event["at"], event["type"], event["stepId"]) for event in events
    ]
    (index,) = await select(api, "idempotency_hash created_at", "job_index", job_id, "job_id")
    assert (index["idempotency_hash"], moment(index["created_at"])) == (job["idempotency_hash"], job["created_at"])
