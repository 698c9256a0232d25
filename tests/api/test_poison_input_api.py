"""Instants out of range are refused wherever one is taken, and a broken row takes no list with it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller

from lucius.buses.sql.journaled import JournaledBus
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.ledger_views import ATTEMPT, SPEC, STATE, STEP

POISON = ("0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00")
NOT_JSON = "{broken"
FAR = 1 << 62


async def _break(api: Any, *statements: str) -> None:
    """Change rows as no part of LUCIUS would."""

    def script() -> Script[None]:
        for statement in statements:
            yield Run(statement)

    await api.context.runbooks.turns.database.write(script)


async def _rewrite(api: Any, table: str, change: Callable[[Any], None]) -> None:
    """Change the documents of a table."""

    def script() -> Script[None]:
        found = yield Fetch(f"SELECT job_id, document FROM {table}")
        for job_id, text in found:
            document = json.loads(text)
            change(document)
            yield Run(f"UPDATE {table} SET document = $2 WHERE job_id = $1", [(job_id, json.dumps(document))])

    await api.context.runbooks.turns.database.write(script)


def _with_absurd_spec(document: Any) -> None:
    document += [None] * (len(SPEC) - len(document))
    for name, instant in {"created_at": -FAR, "not_before": FAR, "deadline_at": FAR}.items():
        document[SPEC.index(name)] = instant
    for step in document[SPEC.index("steps")]:
        step.append(-FAR)  # Its own `created_at`.


def _with_absurd_state(document: Any) -> None:
    step = document[STATE.index("steps")][0]
    step[STEP.index("due_at")] = FAR
    attempt = step[STEP.index("attempt")]
    attempt[ATTEMPT.index("created_at")] = -FAR
    attempt[ATTEMPT.index("claimed_until")] = FAR
    attempt[ATTEMPT.index("dispatch")] = "PENDING"


@pytest.fixture(params=["sqlite", "postgres"])
def sql_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {} if request.param == "sqlite" else {"ledger": request.getfixturevalue("postgres_url")}


@pytest.fixture
async def sql_api(sql_settings: dict[str, str], open_api: Callable[..., Any]) -> Any:
    return await open_api(**sql_settings)


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", POISON)
async def test_envelope_with_an_instant_out_of_range_is_refused(api: Any, text: str) -> None:
    answer = await api.submit(not_before=text)
    api.assert_problem(answer, 422, "ENVELOPE_INVALID", "/not_before")
    assert (await api.client.get("/v1/jobs")).status_code == 200


@pytest.mark.parametrize("name", ["created_from", "created_to"])
@pytest.mark.parametrize("text", POISON)
async def test_query_parameter_out_of_range_is_refused(api: Any, name: str, text: str) -> None:
    answer = await api.client.get("/v1/jobs", params={name: text})
    api.assert_problem(answer, 422, "ENVELOPE_INVALID", f"?{name}")


@pytest.mark.parametrize("text", POISON)
async def test_timestamp_of_a_callback_out_of_range_is_refused(api: Any, text: str) -> None:
    await api.accepted()
    directive = await api.take()
    api.assert_problem(await api.ack(directive, acked_at=text), 422, "ENVELOPE_INVALID", "/acked_at")
    api.assert_problem(await api.result(directive, completed_at=text), 422, "ENVELOPE_INVALID", "/completed_at")
    assert (await api.result(directive)).json()["outcome"] == "APPLIED"
    assert (await api.client.get("/v1/jobs")).status_code == 200


# --- Broken rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        f"UPDATE job_specs SET document = '{NOT_JSON}' WHERE job_id = '%s'",
        "UPDATE job_specs SET document = REPLACE(document, '\"ocr\",\"', '\"ocr\",\"none') WHERE job_id = '%s'",
        "UPDATE job_specs SET document = '[17]' WHERE job_id = '%s'",
        f"UPDATE job_states SET document = '{NOT_JSON}' WHERE job_id = '%s'",
        "UPDATE job_states SET document = REPLACE(document, 'false]', 'true]') WHERE job_id = '%s'",
        "UPDATE job_states SET status = 'LOST' WHERE job_id = '%s'",
        "UPDATE job_states SET document = '[7,' || SUBSTR(document, 4) WHERE job_id = '%s'",
        "DELETE FROM job_specs WHERE job_id = '%s'",
    ],
)
async def test_a_broken_job_is_listed_as_such(sql_api: Any, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    api = sql_api
    broken, sound = await api.accepted(), await api.accepted()
    await _break(api, damage % broken)
    with caplog.at_level(logging.WARNING, "lucius.ledger"):
        answer = await api.client.get("/v1/jobs")
    assert answer.status_code == 200, answer.text
    items = {item["jobId"]: item for item in answer.json()["items"]}
    assert items[sound]["error"] is None
    assert set(items[broken]) == {"jobId", "tenant_id", "error"}
    assert items[broken]["tenant_id"] == "acme"
    assert items[broken]["error"]["code"] == "ROW_UNREADABLE"
    assert broken in caplog.text
    api.assert_problem(await api.client.get(f"/v1/jobs/{broken}"), 500, "INTERNAL")


async def test_absurd_instants_are_shown(sql_api: Any) -> None:
    api = sql_api
    job_id = await api.accepted()
    await _rewrite(api, "job_specs", _with_absurd_spec)
    await _rewrite(api, "job_states", _with_absurd_state)
    await _break(
        api,
        f"UPDATE job_states SET updated_at = {-FAR}, unsent_since = {-FAR}, unsent_until = {FAR}",
        f"UPDATE job_events SET events = '[{FAR},' || SUBSTR(events, 16)",
    )
    (job,) = (await api.client.get("/v1/jobs")).json()["items"]
    assert (job["created_at"], job["not_before"]) == ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")
    assert (await api.events(job_id))[0]["at"] == "9999-12-31T23:59:59.999Z"
    (row,) = (await api.client.get("/v1/admin/outbox")).json()["items"]
    assert row["claimed_until"] == "9999-12-31T23:59:59.999Z"


async def test_broken_events_outbox_rows_and_dead_letters_are_listed_as_such(sql_api: Any) -> None:
    api = sql_api
    job_id = await api.accepted()
    await _break(
        api,
        "UPDATE job_states SET unsent_since = 1, unsent_until = 1, status = 'FAILED_FINAL', completed_at = 1",
        "UPDATE job_states SET document = REPLACE(document, '\"SENT\"', '\"PERHAPS\"')",
        f"UPDATE messages SET state = 'DEAD', properties = '{NOT_JSON}', ended_at = {FAR}, reason = 'TEST'",
        f"UPDATE job_events SET events = '{NOT_JSON}'",
    )
    (row,) = (await api.client.get("/v1/admin/outbox")).json()["items"]
    assert (row["jobId"], row["error"]["code"]) == (job_id, "ROW_UNREADABLE")
    letters = (await api.client.get("/v1/admin/dead-letters")).json()
    assert [(item["jobId"], item["error"]["code"]) for item in letters["items"]] == [(job_id, "ROW_UNREADABLE")]
    assert [message["reason"] for message in letters["messages"]] == ["TEST"]
    await _break(api, "UPDATE job_states SET document = REPLACE(document, '\"PERHAPS\"', '\"SENT\"')")
    (event,) = await api.events(job_id)
    assert (event["type"], event["error"]["code"]) == ("UNREADABLE", "ROW_UNREADABLE")


async def test_sweeper_goes_on_beside_a_broken_job(sql_settings: dict[str, str], open_api: Callable[..., Any]) -> None:
    """The deadline of a sound job passes although a broken one is due before it."""
    api = await open_api(**sql_settings, job_deadline_seconds=3.0)
    broken, sound = await api.accepted(), await api.accepted()
    await _break(
        api,
        f"UPDATE job_specs SET document = '{NOT_JSON}' WHERE job_id = '{broken}'",
        "UPDATE messages SET state = 'SETTLED', ended_at = 1",
        f"UPDATE job_states SET wake_at = 1 WHERE job_id = '{broken}'",
    )
    await api.operate(sound, "pause")
    await api.operate(sound, "resume")
    assert await api.context.ledger.repair(api.clock.now(), 30.0) is not None
    assert (await api.ended(sound))["status"] == "FAILED_FINAL"


async def test_bus_starts_beside_a_broken_message(open_api: Callable[..., Any]) -> None:
    first = await open_api()
    await first.accepted(tenant_id="a")
    second_job = await first.accepted(tenant_id="b")
    await _break(
        first,
        f"UPDATE messages SET properties = '{NOT_JSON}' WHERE message_id NOT LIKE '{second_job}%'",
        "INSERT INTO messages (subscription_id, message_id, state, properties, enqueued_at, visible_at,"
        " delivery_count, expires_at) VALUES (999, 'orphan', 'QUEUED', '{}', 1, 1, 0, 9999999999999)",
    )
    async with JournaledBus(first.context.runbooks.turns.database, first.clock) as again:
        topics = [f"global-bus-p{lane}" for lane in range(16)]
        found = await again.receive(topics, "ocr", 10, 30.0, 0.0)
        assert len(found) == 2


async def test_broken_rows_of_runbooks_take_no_list_with_them(
    sql_settings: dict[str, str], open_api: Callable[..., Any]
) -> None:
    caller = RunbookCaller(await open_api(**QUICK, **sql_settings))
    await caller.publish(PLAIN)
    batch = await caller.create("ann", "bob", runbook="plain")
    await caller.work(2)
    await _break(
        caller.api,
        f"UPDATE runbook_events SET detail = '{NOT_JSON}', at = {FAR} WHERE kind = 'batch-detected'",
        f"UPDATE batches SET batch_start_time = {-FAR}, detected_at = {FAR}",
        f"UPDATE step_executions SET result_json = '{NOT_JSON}' WHERE step_index = 0 AND batch_member_id IN"
        " (SELECT id FROM batch_members WHERE member_key = 'ann')",
        f"UPDATE batch_members SET added_at = {FAR}",
    )
    (shown,) = (await caller.get("/v1/batches"))["items"]
    assert shown["start"] == "0001-01-01T00:00:00.000Z"
    found = (await caller.get(f"/v1/batches/{batch}/events"))["items"]
    assert [one["detail"]["error"]["code"] for one in found if one["kind"] == "batch-detected"] == ["ROW_UNREADABLE"]
    ann, bob = await caller.members(batch)
    assert ann["steps"][0]["result"]["error"]["code"] == "ROW_UNREADABLE"
    assert bob["steps"][0]["result"] == {"guid": "g-bob"}
