"""A scheduler that knows nothing but the contract of seed 004: its columns, its messages, on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from counts_hold import expect_counts_to_hold
from harness import FAILURE, STILL_POLLING, SUCCESS, Harness, Job, runbook

from lucius.runbooks.core.messages import EVENTS_TOPIC, ORCHESTRATOR
from lucius.sql.database import Fetch, Script

NAME, TABLE = "moves", "runbook_moves_v1"
POLL = {"interval": "5m", "timeout": "1h"}
HOUR = 3_600_000


def step(name: str, worker: str = "elsewhere", **more: Any) -> dict[str, Any]:
    return {"name": name, "worker_id": worker, **more}


YAML = runbook(
    {"prep": [step("check"), step("copy", poll=POLL)], "go": [step("tell", on_failure="undo")]},
    offsets={"prep": "T-1h"}, name=NAME, init=[step("open", poll=POLL)], on_member_removed=[step("leave")],
    rollbacks={"undo": [step("untell", params={"Upn": "{{Upn}}", "City": "{{City}}"})]},
)  # fmt: skip


class ContractScheduler:
    """Writes the columns that the contract names, and sends its five messages with its fields, and nothing else."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.batch = 0
        self.version = 1
        self.members: dict[str, int] = {}
        self.phases: dict[str, int] = {}

    @property
    def now(self) -> int:
        return int(self.harness.clock.now())

    async def insert(self, table: str, **values: Any) -> int:
        names, marks = ", ".join(values), ", ".join(f"${place}" for place in range(1, len(values) + 1))

        def script() -> Script[Any]:
            return (yield Fetch(f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", list(values.values())))

        return int((await self.harness.database.write(script))[0][0])

    async def send(self, message_type: str, **fields: Any) -> None:
        head = {"messageType": message_type, "runbookName": NAME, "runbookVersion": self.version, "batchId": self.batch}
        await self.harness.send({**head, **fields})

    async def publish(self, yaml: str = YAML, version: int = 1) -> int:
        self.version = version
        return await self.insert(
            "runbooks", name=NAME, version=version, yaml_content=yaml, data_table_name=f"runbook_moves_v{version}",
            is_active=True, overdue_behavior="rerun", ignore_overdue_applied=False, rerun_init=False,
            created_at=self.now,
        )  # fmt: skip

    async def detect(self, *keys: str, yaml: str = YAML, has_init: bool = True) -> None:
        """A runbook, its data table, a batch with members, its phases and its init."""
        runbook_id = await self.publish(yaml)
        await self.harness.run(
            f"CREATE TABLE {TABLE} (_row_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, _member_key TEXT NOT NULL,"
            " _batch_time BIGINT, _first_seen_at BIGINT, _last_seen_at BIGINT, _is_current BOOLEAN NOT NULL,"
            ' "Upn" TEXT, "City" TEXT)'
        )
        start = self.now + HOUR
        self.batch = await self.insert(
            "batches", runbook_id=runbook_id, batch_start_time=start, status="detected", detected_at=self.now
        )
        for key in keys:
            await self.add_row(key)
            self.members[key] = await self.insert(
                "batch_members", batch_id=self.batch, member_key=key, status="active", added_at=self.now
            )
        for name, offset in (("prep", 60), ("go", 0)):
            self.phases[name] = await self.insert(
                "phase_executions", batch_id=self.batch, phase_name=name, offset_minutes=offset,
                due_at=start - offset * 60_000, runbook_version=1, status="pending",
            )  # fmt: skip
        if has_init:
            await self.insert(
                "init_executions", batch_id=self.batch, step_name="open", step_index=0, runbook_version=1,
                worker_id="elsewhere", function_name="open", params_json="{}", status="pending", is_poll_step=True,
                poll_interval_sec=300, poll_timeout_sec=3600, poll_count=0,
            )  # fmt: skip
            await self.harness.run(
                "UPDATE batches SET status = 'init_dispatched', init_dispatched_at = $2 WHERE id = $1",
                self.batch, self.now,
            )  # fmt: skip
            await self.send("batch-init", batchStartTime="2027-01-01T00:00:00Z", memberCount=len(keys))

    async def add_row(self, key: str, is_current: bool = True) -> None:
        await self.harness.run(
            f'INSERT INTO {TABLE} (_member_key, _first_seen_at, _last_seen_at, _is_current, "Upn", "City")'
            " VALUES ($1, $2, $2, $3, $1, 'Rome')",
            key, self.now, is_current,
        )  # fmt: skip

    async def dispatch(self, phase: str, *steps: str, polled: tuple[str, ...] = ()) -> None:
        await self.make_steps(phase, *steps, polled=polled)
        await self.announce(phase)

    async def make_steps(self, phase: str, *steps: str, polled: tuple[str, ...] = ()) -> None:
        for key, member in self.members.items():
            for index, name in enumerate(steps):
                is_polled = name in polled
                await self.insert(
                    "step_executions", phase_execution_id=self.phases[phase], batch_member_id=member, step_name=name,
                    step_index=index, worker_id="elsewhere", function_name=name, params_json=f'{{"Upn":"{key}"}}',
                    status="pending", is_poll_step=is_polled, poll_interval_sec=300 if is_polled else None,
                    poll_timeout_sec=3600 if is_polled else None, poll_count=0,
                )  # fmt: skip
        await self.harness.run(
            "UPDATE phase_executions SET status = 'dispatched', dispatched_at = $2 WHERE id = $1",
            self.phases[phase], self.now,
        )  # fmt: skip

    async def announce(self, phase: str) -> None:
        await self.send(
            "phase-due", phaseExecutionId=self.phases[phase], phaseName=phase, offsetMinutes=60,
            dueAt="2027-01-01T00:00:00Z", memberIds=list(self.members.values()),
        )  # fmt: skip

    async def poll(self, table: str, ahead: int, **more: Any) -> int:
        """A `poll-check` for every step whose interval has passed; `ahead`: the row's own count, or the next one."""
        due = await self.harness.rows(
            f"SELECT id, step_name, poll_count FROM {table} WHERE status = 'polling'"
            " AND last_polled_at + poll_interval_sec * 1000 <= $1 ORDER BY id",
            self.now,
        )
        for number, name, count in due:
            await self.send("poll-check", stepExecutionId=number, stepName=name, pollCount=count + ahead, **more)
        return len(due)


@pytest.fixture
def scheduler(postgres_harness: Harness) -> ContractScheduler:
    return ContractScheduler(postgres_harness)


def functions(harness: Harness) -> list[str]:
    return [f"{job.member} {job.function}".strip() for job in harness.done]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("has_kind", [False, True])
async def test_a_batch_lives_to_its_end(scheduler: ContractScheduler, ahead: int, has_kind: bool) -> None:
    harness = scheduler.harness
    polls: dict[str, int] = {}

    def answer(job: Job) -> dict[str, Any]:
        if job.function not in ("open", "copy"):
            return SUCCESS
        polls[job.member] = polls.get(job.member, 0) + 1
        return STILL_POLLING if polls[job.member] < 3 else SUCCESS

    harness.answer = answer
    await scheduler.detect("a", "b")
    await harness.settle()
    assert await harness.init() == ["polling"]
    for _ in range(2):
        assert await scheduler.poll("init_executions", ahead, **({"kind": "init"} if has_kind else {})) == 0
        harness.clock.advance(300)
        assert await scheduler.poll("init_executions", ahead, **({"kind": "init"} if has_kind else {})) == 1
        await harness.settle()
    assert await harness.init() == ["succeeded"]
    assert await harness.batch_status(scheduler.batch) == "active"

    await scheduler.dispatch("prep", "check", "copy", polled=("copy",))
    await harness.settle()
    for _ in range(2):
        harness.clock.advance(300)
        assert await scheduler.poll("step_executions", ahead, **({"kind": "step"} if has_kind else {})) == 2
        await harness.settle()
    counts = await harness.rows("SELECT poll_count FROM step_executions WHERE step_name = 'copy'")
    assert counts == [(2,), (2,)]
    assert await harness.phases() == {"prep": "completed", "go": "pending"}
    await scheduler.dispatch("go", "tell")
    await harness.settle()
    assert await harness.batch_status(scheduler.batch) == "completed"
    shown = await harness.queries.batch(scheduler.batch)
    assert (shown["runbook"], shown["verdict"]) == (NAME, "completed")
    listed, _ = await harness.queries.batches(NAME, None, 10, None)
    assert [one["batch_id"] for one in listed] == [scheduler.batch]


async def test_a_poll_check_that_comes_again_before_the_interval_changes_nothing(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    harness.answer = lambda job: STILL_POLLING
    await scheduler.detect("a")
    await harness.settle()
    harness.clock.advance(300)
    for _ in range(3):
        await scheduler.send("poll-check", stepExecutionId=1, stepName="open", pollCount=0)
        await harness.settle()
        await scheduler.send("poll-check", stepExecutionId=1, stepName="open", pollCount=1)
        await harness.settle()
    assert await harness.value("SELECT poll_count FROM init_executions") == 1


async def test_a_poll_check_without_kind_goes_to_the_step_of_its_name(scheduler: ContractScheduler) -> None:
    """Steps and init have ids of their own, so that both can have the same one."""
    harness = scheduler.harness
    harness.answer = lambda job: STILL_POLLING if job.function == "copy" else SUCCESS
    await scheduler.detect("a")
    await harness.settle()
    await scheduler.dispatch("prep", "copy", polled=("copy",))
    await harness.settle()
    harness.clock.advance(300)
    await scheduler.send("poll-check", stepExecutionId=1, stepName="copy", pollCount=0)
    assert await harness.value("SELECT poll_count FROM step_executions") == 1
    assert await harness.init() == ["succeeded"]


async def test_members_join_and_leave(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    await scheduler.detect("a", "b", has_init=False)
    await scheduler.dispatch("prep", "check", "copy", polled=("copy",))
    await harness.settle()
    assert await harness.batch_status(scheduler.batch) == "active", "a batch without init needs no word for that"
    for key, is_current in (("c", True), ("d", False)):
        await scheduler.add_row(key, is_current)
        joined = await scheduler.insert(
            "batch_members", batch_id=scheduler.batch, member_key=key, status="active", added_at=scheduler.now,
            add_dispatched_at=scheduler.now,
        )  # fmt: skip
        await scheduler.send("member-added", batchMemberId=joined, memberKey=key)
        await harness.settle()
    assert functions(harness)[4:] == ["c check", "c copy"], "whose row is not current has no data to catch up with"
    assert "unknown variable" in await harness.value(
        "SELECT error_message FROM step_executions WHERE step_name = 'check' AND status = 'failed'"
    )
    await harness.run(
        "UPDATE batch_members SET status = 'removed', removed_at = $2, remove_dispatched_at = $2 WHERE id = $1",
        scheduler.members["b"], scheduler.now,
    )  # fmt: skip
    await scheduler.send("member-removed", batchMemberId=scheduler.members["b"], memberKey="b")
    await harness.settle()
    assert functions(harness)[6:] == ["b leave"]


async def test_a_failed_step_is_rolled_back_with_the_members_data(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    harness.answer = lambda job: FAILURE if job.function == "tell" else SUCCESS
    await scheduler.detect("a", has_init=False)
    await scheduler.dispatch("go", "tell")
    await harness.settle()
    assert harness.done[-1].params == {"Upn": "a", "City": "Rome"}
    assert await harness.steps() == {"a tell": "rolled_back"}


async def test_a_polling_answer_on_a_step_without_poll_uses_the_defaults(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    answers = [STILL_POLLING, SUCCESS]
    harness.answer = lambda job: answers.pop(0)
    await scheduler.detect("a", has_init=False)
    await scheduler.dispatch("go", "tell")
    await harness.settle()
    row = (await harness.rows("SELECT status, poll_interval_sec, poll_timeout_sec FROM step_executions"))[0]
    assert row == ("polling", 300, 86_400)
    harness.clock.advance(300)
    assert await scheduler.poll("step_executions", 0) == 1
    await harness.settle()
    assert await harness.steps() == {"a tell": "succeeded"}


async def test_the_messages_runbook_and_version_are_honoured(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    await scheduler.detect("a", "b", has_init=False)
    await scheduler.publish(YAML.replace('"leave"', '"leave-anew"'), version=2)
    for key, version in (("a", 1), ("b", 2)):
        scheduler.version = version
        await harness.run(
            "UPDATE batch_members SET status = 'removed', removed_at = $2, remove_dispatched_at = $2 WHERE id = $1",
            scheduler.members[key], scheduler.now,
        )  # fmt: skip
        await scheduler.send("member-removed", batchMemberId=scheduler.members[key], memberKey=key)
        await harness.settle()
    assert functions(harness) == ["a leave", "b leave-anew"]
    versions = await harness.rows("SELECT runbook_version FROM followup_executions ORDER BY id")
    assert versions == [(1,), (2,)]


async def test_a_message_of_another_runbook_is_a_dead_letter(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    await scheduler.detect("a", has_init=False)
    body = {"messageType": "member-added", "runbookName": "others", "runbookVersion": 1, "batchId": scheduler.batch}
    with pytest.raises(Exception, match=f"batch {scheduler.batch} is of runbook moves, not others"):
        await harness.send({**body, "batchMemberId": scheduler.members["a"], "memberKey": "a"})
    harness.observer.failures.clear()
    letters = await harness.bus.dead_letters(10, [EVENTS_TOPIC])
    assert [letter.ref.subscription for letter in letters] == [ORCHESTRATOR]
    assert "not others" in letters[0].reason
    assert harness.observer.refused == [(EVENTS_TOPIC, "MALFORMED")]


async def test_members_of_such_a_runbook_are_not_lucius_to_write(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    await scheduler.detect("a", has_init=False)
    await scheduler.dispatch("go", "tell")
    await harness.settle()
    with pytest.raises(Exception, match="another scheduler keeps the members of runbook moves"):
        await harness.operations.create_batch(NAME, b"Upn,City\nz,Rome\n", harness.clock.now(), "time", "olga")
    assert await harness.rows("SELECT id FROM batches WHERE origin = 'manual'") == []


async def test_steps_of_a_phase_whose_message_is_late_wait_for_it(scheduler: ContractScheduler) -> None:
    """Their rows do not say which batch they are of, so the end of the phase before must not send them."""
    harness = scheduler.harness
    await scheduler.detect("a", "b", has_init=False)
    await scheduler.dispatch("prep", "check")
    await scheduler.make_steps("go", "tell")
    await harness.settle()
    assert sorted(functions(harness)) == ["a check", "b check"]
    await scheduler.announce("go")
    await harness.settle()
    assert sorted(functions(harness)[2:]) == ["a tell", "b tell"]
    assert await harness.batch_status(scheduler.batch) == "completed"
    await expect_counts_to_hold(harness)


async def test_counts_made_anew_leave_out_what_is_counted_when_it_is_adopted(scheduler: ContractScheduler) -> None:
    harness = scheduler.harness
    harness.answer = lambda job: None
    await scheduler.detect("a", "b", has_init=False)
    await scheduler.dispatch("prep", "check")
    await scheduler.make_steps("go", "tell")
    await harness.run("UPDATE batch_changes SET counted = FALSE")  # As an older program leaves them.
    await harness.orchestrator.count_anew()
    phases = (await harness.queries.batch(scheduler.batch))["phase_list"]
    shown = [step["counts"] for phase in phases for step in phase["steps"]]
    assert [(step["dispatched"], step["pending"]) for step in shown] == [(2, 0), (0, 2)]
    await scheduler.announce("go")
    await harness.settle()
    await expect_counts_to_hold(harness)
