"""The tables and the messages of the contract: every name it gives, on both databases."""

from __future__ import annotations

import json

import pytest
from harness import OPERATOR, STILL_POLLING, Harness, csv, runbook

from lucius.runbooks.core import states
from lucius.runbooks.core.messages import SUBSCRIPTIONS, worker_subscription

_EXECUTION = """step_name step_index worker_id function_name params_json status job_id result_json error_message
    dispatched_at completed_at is_poll_step poll_interval_sec poll_timeout_sec poll_started_at last_polled_at
    poll_count"""
TABLES = {
    "runbooks": """id name version yaml_content data_table_name is_active overdue_behavior ignore_overdue_applied
        rerun_init created_at""",
    "batches": "id runbook_id batch_start_time status detected_at init_dispatched_at",
    "batch_members": """id batch_id member_key status added_at removed_at add_dispatched_at remove_dispatched_at""",
    "phase_executions": """id batch_id phase_name offset_minutes due_at runbook_version status dispatched_at
        completed_at""",
    "step_executions": f"id phase_execution_id batch_member_id {_EXECUTION}",
    "init_executions": f"id batch_id runbook_version {_EXECUTION}",
}
DATA_TABLE = "_row_id _member_key _batch_time _first_seen_at _last_seen_at _is_current"
STATUSES = {
    "pending", "dispatched", "succeeded", "failed", "polling", "poll_timeout", "rolled_back", "cancelled",
}  # fmt: skip
DRAWN = {
    ("pending", "dispatched"), ("dispatched", "succeeded"), ("dispatched", "failed"), ("dispatched", "polling"),
    ("polling", "succeeded"), ("polling", "poll_timeout"), ("failed", "rolled_back"), ("poll_timeout", "rolled_back"),
}  # fmt: skip
WRITTEN = {
    ("polling", "failed"),  # poll-check 3d
    ("pending", "cancelled"), ("dispatched", "cancelled"),  # member-removed 1
    ("polling", "cancelled"),  # runbooks.md, Removal
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
async def test_tables_every_column_of_the_contract_exists(real_harness: Harness, table: str) -> None:
    assert await real_harness.rows(f"SELECT {', '.join(TABLES[table].split())} FROM {table}") == []


async def test_tables_the_dynamic_data_table_has_its_system_columns_and_the_query_columns(
    real_harness: Harness,
) -> None:
    harness = real_harness
    await harness.publish(runbook({"go": ["move"]}, name="contoso-mailbox-migration"))
    await harness.batch("contoso-mailbox-migration", ["a", "b"])
    table = await harness.value("SELECT data_table_name FROM runbooks")
    assert table == "runbook_contoso_mailbox_migration_v1"
    names = f'{", ".join(DATA_TABLE.split())}, "Upn"'
    now = harness.clock.now()
    found = await harness.rows(f"SELECT {names} FROM {table} WHERE _member_key = $1 AND _is_current = TRUE", "b")
    assert found == [(2, "b", None, now, now, True, "b")]


def test_tables_the_step_machine_has_the_statuses_of_the_contract() -> None:
    assert set(states.STEP) == STATUSES


def test_tables_the_step_machine_has_the_transitions_of_the_contract_and_no_other() -> None:
    assert {(before, after) for before, to in states.STEP.items() for after in to} == DRAWN | WRITTEN


def test_tables_only_a_retry_leaves_a_terminal_status() -> None:
    retried = {(before, after) for before, to in states.RETRIED.items() for after in to}
    assert retried == {(status, "pending") for status in ("failed", "poll_timeout", "rolled_back", "cancelled")}


def test_tables_batches_phases_and_members_have_the_statuses_of_the_contract() -> None:
    assert set(states.BATCH) == {"detected", "init_dispatched", "active", "completed", "failed"}
    assert set(states.PHASE) == {"pending", "dispatched", "completed", "failed", "skipped"}
    assert set(states.MEMBER) == {"active", "removed"}


def test_messages_topics_and_subscription_are_those_of_the_contract() -> None:
    events, results = SUBSCRIPTIONS
    assert (events.topic, events.name, events.where) == ("orchestrator-events", "orchestrator", {})
    assert (results.topic, results.name) == ("results", "orchestrator")
    for subscription in (events, results, worker_subscription("exchange")):
        assert (subscription.delivery_max, subscription.ttl_seconds) == (10, 14 * 86_400)
    jobs = worker_subscription("exchange")
    assert (jobs.topic, jobs.where) == ("jobs", {"WorkerId": "exchange"})


async def test_messages_lock_is_one_minute(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}, init=["check"]))
    await harness.batch("moves", ["a"])
    assert harness.orchestrator._settings.lock_seconds == 60
    (first,) = await harness.bus.receive(["orchestrator-events"], "orchestrator", 1, 60, 0)
    assert first.locked_until == harness.clock.now() + 60_000


async def test_messages_expired_ones_are_dead_letters(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}, init=["check"]))
    await harness.batch("moves", ["a"])
    harness.clock.advance(14 * 86_400 + 1)
    await harness.bus.upkeep()
    assert await harness.handle_events() == 0
    assert [letter.ref.message_id for letter in await harness.bus.dead_letters(10)] == ["batch-init-1-v1"]


async def test_messages_are_dead_letters_after_ten_deliveries(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}, init=["check"]))
    await harness.batch("moves", ["a"])
    for _ in range(10):
        assert await harness.bus.receive(["orchestrator-events"], "orchestrator", 1, 60, 0)
        harness.clock.advance(61)
    assert await harness.bus.receive(["orchestrator-events"], "orchestrator", 1, 60, 0) == []
    assert len(await harness.bus.dead_letters(10)) == 1


async def test_messages_have_the_fields_and_properties_of_the_contract(
    real_harness: Harness,
) -> None:
    polled = {"name": "move", "poll": {"interval": "5m", "timeout": "1h"}}
    harness = real_harness
    await harness.publish(runbook({"go": [polled]}, init=["check"]))
    await harness.batch("moves", ["a", "b"])
    harness.answer = lambda job: STILL_POLLING if job.function == "move" else {"status": "Success", "result": {}}
    await harness.step()
    await harness.step()
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.operations.remove(1, ["b"], OPERATOR)
    await harness.step(300)
    sent = {}
    for delivery in harness.handled:
        body = json.loads(delivery.body)
        assert delivery.properties["MessageType"] == body["messageType"]
        assert delivery.properties["ContentType"] == "application/json"
        sent.setdefault(body["messageType"], {name: type(value) for name, value in body.items()})
    start = harness.clock.now() - 300_000
    assert sent == {
        "batch-init": named(batchStartTime=str, memberCount=int),
        "phase-due": named(phaseExecutionId=int, phaseName=str, offsetMinutes=int, dueAt=str, memberIds=list),
        "member-added": named(batchMemberId=int, memberKey=str),
        "member-removed": named(batchMemberId=int, memberKey=str),
        "poll-check": named(stepExecutionId=int, stepName=str, pollCount=int, kind=str),
    }
    assert start == await harness.value("SELECT batch_start_time FROM batches")


def named(**fields: type) -> dict[str, type]:
    return {"messageType": str, "runbookName": str, "runbookVersion": int, "batchId": int, **fields}
