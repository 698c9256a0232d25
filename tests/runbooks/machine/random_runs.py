"""Long runs in which anything happens in any order: answers of every kind, operators at work, versions that change.

A run is decided by its seed alone. After it everything is let come to its end: workers succeed, held batches are
resumed, time passes. Then nothing may be left open.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from counts_hold import expect_counts_to_hold
from harness import FAILURE, OPERATOR, STILL_POLLING, THROTTLED, WORKER, Harness, Job, csv, runbook, success

from lucius.domain.errors import CallerError
from lucius.runbooks.core.definition.calendar_reading import read_calendar
from lucius.runbooks.store.lease import LeaseLost
from lucius.sql.runbook_tables import IS_OPEN

TRACKED = (
    "step_executions", "init_executions", "followup_executions", "phase_executions", "batches", "batch_members",
)  # fmt: skip
ONE_AT_A_TIME = (
    "SELECT batch_member_id, COUNT(*) FROM step_executions WHERE status IN ('dispatched', 'polling')"
    " GROUP BY batch_member_id HAVING COUNT(*) > 1"
)
_AGAINST = "(status <> 'succeeded' AND (status <> 'cancelled' OR cancel_cause <> 'removed'))"
_GONE = "(status = 'cancelled' AND batch_member_id IN (SELECT id FROM batch_members WHERE status = 'removed'))"
"""Whatever it was cancelled for: who is no member any more does not count against the phase."""
RULES = (
    f"SELECT p.id FROM phase_executions p WHERE p.status = 'completed' AND EXISTS"
    f" (SELECT 1 FROM step_executions WHERE phase_execution_id = p.id AND {_AGAINST} AND NOT {_GONE})",
    f"SELECT p.id FROM phase_executions p WHERE p.status = 'failed' AND NOT EXISTS"
    f" (SELECT 1 FROM step_executions WHERE phase_execution_id = p.id AND {_AGAINST})",
    "SELECT p.id FROM phase_executions p JOIN step_executions s ON s.phase_execution_id = p.id"
    " WHERE p.status = 'skipped' AND s.status <> 'cancelled'",
    "SELECT b.id FROM batches b JOIN phase_executions p ON p.batch_id = b.id"
    " WHERE b.status = 'completed' AND p.status = 'failed'",
    "SELECT id FROM batches WHERE status = 'failed' AND error_message IS NULL",
    "SELECT b.id FROM batches b JOIN phase_executions p ON p.batch_id = b.id AND p.skip_cause = 'refused'"
    " JOIN runbooks r ON r.id = b.runbook_id AND r.version = p.runbook_version WHERE b.status = 'completed'",
    "SELECT l.id FROM phase_executions p JOIN phase_executions l ON l.batch_id = p.batch_id AND l.id > p.id"
    " AND l.runbook_version = p.runbook_version WHERE p.skip_cause = 'refused' AND l.dispatched_at IS NOT NULL",
    "SELECT m.id FROM batch_members m WHERE m.status = 'active' AND m.failed_at IS NULL AND EXISTS (SELECT 1 FROM"
    " step_executions s WHERE s.batch_member_id = m.id AND s.status IN ('failed', 'poll_timeout', 'rolled_back'))",
    "SELECT s.id FROM step_executions s JOIN followup_executions f ON f.kind = 'rollback' AND f.parent_id = s.id"
    " AND f.round = s.dispatch_count AND f.batch_member_id = s.batch_member_id"
    " WHERE s.status = 'rolled_back' AND f.status <> 'succeeded'",
    "SELECT m.id FROM batch_members m JOIN step_executions s ON s.batch_member_id = m.id"
    " WHERE m.status = 'removed' AND s.status IN ('pending', 'dispatched', 'polling')",
)
"""What must never be found when a run has come to its end."""
WINDOWS = [{"from": f"{hour:02d}:00", "to": f"{hour + 1:02d}:00"} for hour in range(0, 24, 2)]
"""Of runs that have windows: every second hour."""
POLLED = "poll-"
"""How the functions of steps that poll begin."""
DRAIN_ROUNDS_MAX = 60
DRAIN_SECONDS = 1_800


async def record_transitions(harness: Harness) -> None:
    """From now on every change of a status is kept, with the table it happened in."""
    await harness.run("CREATE TABLE transitions (tab TEXT, old TEXT, new TEXT)")
    for table in TRACKED:
        seen = f"INSERT INTO transitions VALUES ('{table}', OLD.status, NEW.status)"
        await harness.run(
            f"CREATE TRIGGER seen_{table} AFTER UPDATE OF status ON {table} WHEN OLD.status <> NEW.status"
            f" BEGIN {seen}; END"
        )


async def transitions(harness: Harness) -> set[tuple[str, str, str]]:
    return set(await harness.rows("SELECT DISTINCT tab, old, new FROM transitions"))  # type: ignore[arg-type]


class RandomRun:
    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness = harness
        self.random = Random(seed)
        self.joined = 0
        # By itself, so that the rest of a run is the same with windows and without.
        self.others = Random(f"approvals of {seed}")
        self.windows = WINDOWS if Random(f"windows of {seed}").random() < 0.4 else []
        self.acts = {
            self._tick: 6,
            self._handle: 8,
            self._handle_twice: 2,
            self._answer: 14,
            self._pass_time: 4,
            self._sweep: 3,
            self._add: 1,
            self._remove: 1,
            self._retry: 2,
            self._resume: 1,
            self._advance: 1,
            self._cancel: 0.15,
            self._publish: 0.3,
        }
        if self.others.random() < 0.4:
            self.acts |= {self._approve: 3, self._refuse: 0.1}

    async def go(self, acts: int) -> None:
        await self.begin()
        await self.act(acts)
        await self.drain()
        await self.check()

    async def begin(self) -> None:
        await self._publish()
        for _ in range(self.random.randint(1, 2)):
            await self._batch()

    async def act(self, acts: int) -> None:
        names, weights = list(self.acts), list(self.acts.values())
        for _ in range(acts):
            (act,) = self.random.choices(names, weights)
            # An operator may ask for what is not possible now, and a scheduler may lose its lease; both are told so.
            with suppress(CallerError, LeaseLost):
                await act()
            self.harness.check()
            await self._expect_none(ONE_AT_A_TIME)
            await expect_counts_to_hold(self.harness)

    async def check(self) -> None:
        for rule in RULES:
            await self._expect_none(rule)
        await expect_counts_to_hold(self.harness)
        await self._expect_sent_in_windows()
        taken = [job.id for job in self.harness.done]
        assert len(taken) == len(set(taken)), "a job was sent twice"

    async def _expect_none(self, rule: str) -> None:
        found = await self.harness.rows(rule)
        assert not found, f"{rule}: {found}"

    async def _expect_sent_in_windows(self) -> None:
        calendar = read_calendar({"windows": self.windows})
        for table in ("step_executions", "init_executions", "followup_executions"):
            kind = "kind" if table == "followup_executions" else "'step'"
            sent = f"SELECT dispatched_at, {kind}, id FROM {table} WHERE dispatched_at IS NOT NULL"
            for moment, what, number in await self.harness.rows(sent):
                assert what == "rollback" or calendar.wait(moment) is None, f"{table} {number} was sent outside"

    async def drain(self) -> None:
        """Let everything come to its end."""
        harness = self.harness
        harness.answer = lambda job: success(out=1)
        for _ in range(DRAIN_ROUNDS_MAX):
            await harness.step(DRAIN_SECONDS)
            await harness.orchestrator.resume()
            for row in await harness.rows("SELECT id FROM batches WHERE held_at IS NOT NULL"):
                with suppress(CallerError):
                    await harness.operations.resume(row[0], OPERATOR)
            for row in await harness.rows("SELECT id FROM batches WHERE advance = 'manual' AND status = 'active'"):
                with suppress(CallerError):
                    await harness.operations.advance(row[0], OPERATOR)
            await harness.settle()
            if not await self.open_things():
                return
        raise AssertionError(f"never ended: {await self.open_things()}")

    async def open_things(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for table in ("step_executions", "init_executions", "followup_executions"):
            found += await self.harness.rows(
                f"SELECT '{table}', id, batch_id, step_name, status, ready, in_flight, wake_at, cancel_cause"
                f" FROM {table} e WHERE in_flight = TRUE OR ready = TRUE OR ({IS_OPEN} AND (status <> 'pending' OR"
                " EXISTS (SELECT 1 FROM batches b WHERE b.id = e.batch_id AND b.completed_at IS NULL)))"
            )
        found += await self.harness.rows("SELECT 'batch', id, status FROM batches WHERE completed_at IS NULL")
        found += await self.harness.rows(
            "SELECT 'phase', id, batch_id, phase_name, status FROM phase_executions"
            " WHERE status IN ('pending', 'dispatched')"
        )
        return found

    # --- What may happen ---------------------------------------------------------------------------------------------

    async def _batch(self) -> None:
        members = [f"m{number}" for number in range(self.random.randint(1, 4))]
        advance = self.random.choice(["time", "time", "manual"])
        await self.harness.batch("moves", members, self.random.choice([0, 3_600, 7_200]), advance)

    async def _publish(self) -> None:
        overdue = self.random.choice(["rerun", "rerun", "ignore"])
        await self.harness.publish(self._runbook(), overdue, self.random.random() < 0.5)

    def _runbook(self) -> str:
        polled = {"poll": {"interval": "5m", "timeout": "1h"}}
        undone = {"on_failure": "undo"}
        flaky = {"retry": {"max_retries": 1, "interval": "1m"}}
        more = [polled, undone, flaky, {}, {"timeout": "10m"}]

        def step(name: str) -> dict[str, object]:
            made: dict[str, object] = {"name": name, "worker_id": WORKER}
            for part in self.random.sample(more, 2):
                made |= part
            return made | {"function": f"{POLLED}{name}" if "poll" in made else name}

        undo = [{"name": "stop", **flaky}, {"name": "tell", **polled}]
        init = [{**step("check"), "params": {}}] if self.random.random() < 0.6 else []
        if init and "on_failure" in init[0]:
            init[0]["on_failure"] = "undo-init"  # Init has no member for the other one.
        parts: dict[str, object] = {"init": init} if init else {}
        if self.windows:
            parts["windows"] = self.windows
        if self.random.random() < 0.3:
            parts["max_failures"] = self.random.choice([1, "40%"])
        if self.random.random() < 0.3:
            parts["max_parallel"] = self.random.choice([1, 2])
        if self._approve in self.acts:
            # By itself too, so that the rest of a run is the same.
            otherwise = self.others.choice(["fail", "skip", "run"])
            wanted = {"count": self.others.randint(1, 2), "until": "90m", "otherwise": otherwise}
            parts["approvals"] = {self.others.choice(["one", "two"]): wanted}
        return runbook(
            {"one": [step("a"), step("b")], "two": [step("c"), step("d")]},
            offsets={"one": "T-1h", "two": "T-0"},
            description=f"{self.random.random()}",
            progression=self.random.choice(["barrier", "independent"]),
            on_member_removed=["leave", "forget"],
            rollbacks={"undo": undo, "undo-init": [{**one, "params": {}} for one in undo]},
            **parts,
        )

    async def _tick(self) -> None:
        await self.harness.scheduler.tick()

    async def _handle(self) -> None:
        await self.harness.handle_events()
        await self.harness.send_rest()

    async def _handle_twice(self) -> None:
        if self.harness.handled:
            await self.harness.handle_again(self.random.choice(self.harness.handled).body)

    async def _answer(self) -> None:
        await self.harness.take_jobs()
        waiting = list(self.harness.waiting.values())
        for job in self.random.sample(waiting, min(len(waiting), self.random.randint(1, 3))):
            await self.harness.reply(job, self._answer_to(job))
        if self.harness.done and self.random.random() < 0.2:
            # A result of any time, once more.
            await self.harness.reply(self.random.choice(self.harness.done), self._answer_to(self.harness.done[-1]))

    def _answer_to(self, job: Job) -> dict[str, object]:
        answers = [success(out=1), FAILURE, STILL_POLLING, THROTTLED]
        if job.function.startswith(POLLED):
            weights = [2, 1, 8, 0.5] if job.id.endswith("-a1") else [4, 4, 4, 0.5]
        else:
            weights = [12 if job.function == "check" else 6, 2, 0.3, 0.5]
        return self.random.choices(answers, weights)[0]

    async def _pass_time(self) -> None:
        self.harness.clock.advance(self.random.choice([1, 30, 60, 301, 601, 1_801, 3_600]))

    async def _sweep(self) -> None:
        await self.harness.orchestrator.sweep()
        await self.harness.orchestrator.resume()

    async def _any_batch(self) -> int:
        found = await self.harness.rows("SELECT id FROM batches ORDER BY id")
        return int(self.random.choice(found)[0])

    async def _some_members(self) -> tuple[int, list[str]]:
        batch_id = await self._any_batch()
        found = await self.harness.rows(
            "SELECT member_key FROM batch_members WHERE batch_id = $1 AND status = 'active' ORDER BY id", batch_id
        )
        return batch_id, [row[0] for row in self.random.sample(found, min(len(found), 1))]

    async def _add(self) -> None:
        self.joined += 1
        key = self.random.choice([f"j{self.joined}", "m0"])
        await self.harness.operations.add_members(await self._any_batch(), csv([key]), OPERATOR)

    async def _remove(self) -> None:
        batch_id, keys = await self._some_members()
        await self.harness.operations.remove(batch_id, keys, OPERATOR)

    async def _retry(self) -> None:
        await self.harness.operations.retry(await self._any_batch(), None, OPERATOR)

    async def _resume(self) -> None:
        await self.harness.operations.resume(await self._any_batch(), OPERATOR)

    async def _advance(self) -> None:
        await self.harness.operations.advance(await self._any_batch(), OPERATOR)

    async def _decide(self, decision: str) -> None:
        batch_id, name = await self._any_batch(), self.others.choice(["key:anna", "key:bert", "key:cleo"])
        phase = self.others.choice(["one", "two"])
        await self.harness.operations.decide(batch_id, phase, decision, name, lambda role: True)

    async def _approve(self) -> None:
        await self._decide("approved")

    async def _refuse(self) -> None:
        await self._decide("refused")

    async def _cancel(self) -> None:
        await self.harness.operations.cancel(await self._any_batch(), "enough", OPERATOR)
