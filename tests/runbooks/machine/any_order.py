"""One story, told in any order: what it needs to be driven, and what of its end must always be the same.

The story: a batch of `m0` to `m3` with an init, two phases, a poll, a failure with a rollback, a member that leaves and
one that joins. The worker answers by function, member and number of the job alone:

- `m1` fails in step `b` and is rolled back;
- `m2` polls in step `b`: its first two jobs say that it still runs;
- `m3` is removed while the first phase runs. Its worker sits on its first job until the removal was handled;
- `m4` joins while the first phase runs, and catches up;
- all else succeeds.

Nothing starts in the last ten minutes of an hour, and the second phase waits for two approvals. Now and then an
operator pauses the batch and resumes it, which must change nothing of its end.

Kept out by construction, because there the order rightly decides: a removal that comes before or after its member's
step has succeeded (so `m3`'s worker waits); members who change before or after a phase is dispatched (so the first
phase is dispatched before they do, and the second after, though the messages about either may come when they like);
and time that runs out (so every timeout is longer than the story). Not compared: ids of jobs, times, what was noted in
the trail, and why a step was cancelled, which says what came first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

from harness import OPERATOR, STILL_POLLING, Harness, Job, csv, failure, runbook, success

from lucius.domain.errors import CallerError
from lucius.domain.time import Instant
from lucius.ports.bus import Delivery, DeliveryRef
from lucius.runbooks.core.approvals import APPROVED
from lucius.runbooks.core.messages import EVENTS_TOPIC, ORCHESTRATOR, read_result

HOUR = 3_600
PATIENT = {"timeout": "20d"}
STORY = runbook(
    {
        "one": [
            {"name": "a", "output_params": {"Guid": "guid"}, **PATIENT},
            {
                "name": "b",
                "params": {"Upn": "{{Upn}}", "Guid": "{{Guid}}"},
                "poll": {"interval": "5m", "timeout": "20d"},
                "on_failure": "undo",
                **PATIENT,
            },
        ],
        "two": [{"name": "c", "params": {"Upn": "{{Upn}}", "Text": "of {{Guid}}"}, **PATIENT}],
    },
    offsets={"one": "T-1h", "two": "T-0"},
    approvals={"two": {"count": 2}},
    windows=[{"from": f"{hour:02d}:00", "to": f"{hour:02d}:50"} for hour in range(24)],
    init=[{"name": "check", **PATIENT}, {"name": "open", **PATIENT}],
    on_member_removed=[{"name": "leave", **PATIENT}, {"name": "forget", **PATIENT}],
    rollbacks={"undo": [{"name": "stop", **PATIENT}, {"name": "tell", **PATIENT}]},
)
APPROVERS = ("key:anna", "key:bert", "key:cleo")
ROUNDS_MAX = 3_000
COPIES_MAX = 3


class Item:
    """A message or a result that exists, and how often it is still to be handled."""

    def __init__(self, content: Any, is_result: bool, times: int) -> None:
        self.content = content
        self.is_result = is_result
        self.times = times


class Telling:
    """One telling of the story. `random` None: every message once, in its order."""

    def __init__(self, stands: Sequence[Harness], random: Random | None) -> None:
        self.harness = stands[0]
        self.stands = stands
        self.random = random
        self.items: list[Item] = []
        self.is_changed = False
        self.jobs: list[tuple[str, str, str]] = []
        self.end: Instant = 0

    async def tell(self) -> dict[str, Any]:
        harness = self.harness
        await harness.publish(STORY)
        await harness.batch("moves", ["m0", "m1", "m2", "m3"], starts_in=HOUR)
        self.end = harness.clock.now() + HOUR * 1000
        for _ in range(ROUNDS_MAX):
            await self._gather()
            if self.items and not self._is_time_for_time():
                await self._deliver()
                continue
            if not self.items and await self._is_over():
                return await self._ending()
            await self._pass_time()
        raise AssertionError(f"the story has no end: {await self._ending()}")

    def _is_time_for_time(self) -> bool:
        """Now and then time passes although messages wait."""
        return self.random is not None and self.random.random() < 0.15

    async def _gather(self) -> None:
        """What the scheduler has said, and what the worker answers."""
        harness = self.harness
        for taken in await harness.bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 100, 60, 0):
            await harness.bus.settle([taken.ref])
            self._add(taken.body, is_result=False)
        await harness.take_jobs()
        for job in list(harness.waiting.values()):
            said = await self._answer(job)
            if said is not None:
                del harness.waiting[job.id]
                self.jobs.append((job.function, job.member, job.id.rsplit("-", 1)[1]))
                self._add(read_result({"jobId": job.id, **said}), is_result=True)

    def _add(self, content: Any, is_result: bool) -> None:
        self.items.append(Item(content, is_result, self.random.randint(1, COPIES_MAX) if self.random else 1))

    async def _answer(self, job: Job) -> dict[str, Any] | None:
        if job.member == "m3" and job.function in ("a", "b", "c"):
            cancelled = (await self.harness.steps())[f"m3 {job.function}"] == "cancelled"
            return success(guid="too late") if cancelled else None
        if job.function == "b" and job.member == "m1":
            return failure("m1 cannot be moved")
        if job.function == "b" and job.member == "m2" and job.id.endswith(("-a1", "-a2")):
            return STILL_POLLING
        return success(guid=f"guid of {job.member}") if job.function == "a" else success(did=job.function)

    async def _deliver(self) -> None:
        """Some of what there is, of one kind, in one turn; on several orchestrators at the same time."""
        await asyncio.gather(*(self._handle(harness, self._choose()) for harness in self.stands))
        for harness in self.stands:
            harness.check()
            await harness.send_rest()

    def _choose(self) -> list[Item]:
        if self.random is None:
            return [self.items.pop(0)]
        if not self.items:
            return []
        is_result = self.random.choice(self.items).is_result
        same = [item for item in self.items if item.is_result == is_result]
        chosen = self.random.sample(same, min(len(same), self.random.randint(1, 4)))
        for item in chosen:
            item.times -= 1
        self.items = [item for item in self.items if item.times > 0]
        return chosen

    async def _handle(self, harness: Harness, items: list[Item]) -> None:
        if not items:
            return
        if items[0].is_result:
            await harness.orchestrator.take_results([item.content for item in items], needs_token=False)
            return
        until = harness.clock.now() + 60_000
        ref = DeliveryRef(EVENTS_TOPIC, ORCHESTRATOR, "a copy")
        await harness.orchestrator.handle(
            [Delivery(ref=ref, body=one.content, properties={}, delivery_count=1, locked_until=until) for one in items]
        )

    async def _pass_time(self) -> None:
        harness = self.harness
        await self._pause_or_resume()
        phases = await harness.phases()
        if phases["one"] != "pending" and not self.is_changed:
            self.is_changed = True
            await harness.operations.remove(1, ["m3"], OPERATOR)
            await harness.operations.add_members(1, csv(["m4"]), OPERATOR)
        if self.is_changed:
            await self._approve()
        seconds = 100 if self.random is None else self.random.choice([1, 60, 300, 900])
        if not self.is_changed:  # The second phase is not due before the members have changed.
            seconds = min(seconds, max(0, (self.end - harness.clock.now()) // 1000 - 1))
        harness.clock.advance(seconds)
        await harness.tick()
        for one in self.stands:
            await one.orchestrator.sweep()
            await one.orchestrator.resume()
            await one.send_rest()

    async def _approve(self) -> None:
        """Somebody approves the second phase, perhaps again, and perhaps when it has begun."""
        names = APPROVERS if self.random is None else self.random.choices(APPROVERS, k=2)
        for name in names:
            harness = self.stands[0] if self.random is None else self.random.choice(self.stands)
            with suppress(CallerError):
                await harness.operations.decide(1, "two", APPROVED, name, lambda role: True)

    async def _pause_or_resume(self) -> None:
        if self.random is None:
            return
        found = await self.harness.rows("SELECT paused_at FROM batches WHERE status NOT IN ('completed', 'failed')")
        if not found:
            return
        operations, is_paused = self.harness.operations, found[0][0] is not None
        if is_paused and self.random.random() < 0.5:
            await operations.resume(1, OPERATOR)
        elif not is_paused and self.random.random() < 0.2:
            await operations.pause(1, OPERATOR)

    async def _is_over(self) -> bool:
        if self.harness.waiting or not self.is_changed:
            return False
        followups = await self.harness.followups()
        return await self.harness.batch_status() in ("completed", "failed") and set(followups.values()) == {"succeeded"}

    async def _ending(self) -> dict[str, Any]:
        """What must be the same whatever the order was."""
        rows = self.harness.rows
        return {
            "batches": await rows("SELECT id, status, error_message FROM batches"),
            "phases": await rows("SELECT phase_name, status FROM phase_executions ORDER BY id"),
            "members": await rows(
                "SELECT member_key, status, CASE WHEN failed_at IS NULL THEN 0 ELSE 1 END FROM batch_members"
                " ORDER BY member_key"
            ),
            "init": await rows("SELECT step_name, status, result_json, params_json FROM init_executions ORDER BY 1"),
            "steps": await rows(
                "SELECT m.member_key, p.phase_name, s.step_index, s.step_name, s.status, s.result_json,"
                " CASE WHEN s.status = 'cancelled' THEN NULL ELSE s.params_json END, s.function_name, s.poll_count,"
                " s.retries_used, CASE WHEN s.status = 'cancelled' THEN NULL ELSE s.error_message END"
                " FROM step_executions s JOIN batch_members m ON m.id = s.batch_member_id"
                " JOIN phase_executions p ON p.id = s.phase_execution_id ORDER BY 1, 2, 3"
            ),
            "followups": await rows(
                "SELECT f.kind, m.member_key, f.step_index, f.step_name, f.status, f.result_json, f.params_json"
                " FROM followup_executions f JOIN batch_members m ON m.id = f.batch_member_id ORDER BY 1, 2, 3"
            ),
            "open": await rows(
                "SELECT id FROM step_executions WHERE in_flight = TRUE OR ready = TRUE OR wake_at IS NOT NULL"
            ),
            "jobs": sorted(job for job in self.jobs if job[:2] != ("a", "m3")),
        }
