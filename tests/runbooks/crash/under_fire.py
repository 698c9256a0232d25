"""Runbooks in processes of their own, under fire, and what must be true of them when all has ended."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.crash.client import Client
from tests.crash.processes import Process
from tests.runbooks.crash.journal_worker import is_flaky

from lucius.sql.runbook_tables import IS_OPEN

PHASES = ("one", "two", "three")
QUICK = {
    "LUCIUS_SCHEDULER_INTERVAL": "0.3",
    "LUCIUS_SCHEDULER_LEASE_SECONDS": "1.5",
    "LUCIUS_SOURCE_INTERVAL": "1",
    "LUCIUS_SOURCE_STILL_SECONDS": "0.2",
    "LUCIUS_RUNBOOK_SWEEP_INTERVAL": "0.3",
    "LUCIUS_RUNBOOK_LOCK_SECONDS": "2",
    "LUCIUS_WORKER_LOCK_SECONDS": "2",
    "LUCIUS_LOG_LEVEL": "WARNING",
}
"""What a killed process had in its hands is another's after two seconds."""
END_SECONDS_MAX = 120.0
READY_SECONDS_MAX = 60.0

Look = Callable[[str], Awaitable[Sequence[Sequence[Any]]]]


def runbook(name: str, source: Mapping[str, Any], worker_of: Mapping[str, str]) -> str:
    """Three phases of three steps: one gives a variable, one may fail, one polls. JSON is YAML."""

    def steps(phase: str) -> list[dict[str, Any]]:
        worker = worker_of[phase]
        about = {"Upn": "{{Upn}}", "phase": phase}
        retry = {"max_retries": 1, "interval": "1s"}
        token = f"Token{phase.capitalize()}"
        return [
            {"name": f"prepare-{phase}", "worker_id": worker, "function": "Prepare", "params": about,
             "output_params": {token: "token"}},
            {"name": f"change-{phase}", "worker_id": worker, "function": "Change",
             "params": {**about, "token": f"{{{{{token}}}}}"}, "retry": retry, "on_failure": "undo"},
            {"name": f"watch-{phase}", "worker_id": worker, "function": "Watch", "params": about,
             "poll": {"interval": "1s", "timeout": "1h"}},
        ]  # fmt: skip

    undo = {"name": "undo", "worker_id": worker_of["two"], "function": "Undo", "params": {"Upn": "{{Upn}}"}}
    phases = [
        {"name": phase, "offset": f"T-{len(PHASES) - place}m", "steps": steps(phase)}
        for place, phase in enumerate(PHASES)
    ]
    return json.dumps({"name": name, "data_source": source, "phases": phases, "rollbacks": {"undo": [undo]}})


def members(prefix: str, first: int, count: int) -> list[str]:
    """Some of them are broken: these fail in the second phase and are rolled back."""
    numbers = range(first, first + count)
    return [f"{'broken-' if number % 10 == 7 else ''}{prefix}-{number}" for number in numbers]


class WorkerProcess(Process):
    """`journal_worker.py` on a journal of its own."""

    def __init__(self, way: str, settings: Mapping[str, str], folder: Path) -> None:
        super().__init__(way, settings=settings, folder=folder)
        self.journal = folder / f"{way}.journal"
        self._way = way

    def start(self) -> None:
        assert self._process is None
        self.lives += 1
        script = Path(__file__).with_name("journal_worker.py")
        with self.log_file.open("ab") as log:
            self._said_before = len(self.log)
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(self.journal), self._way],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip


def start_all(stack: ExitStack, processes: Sequence[Process]) -> None:
    """Side by side; with the stack they are gone."""
    for process in processes:
        process._folder.mkdir(exist_ok=True)
        stack.callback(process.kill)
        process.start()
    for process in processes:
        process.wait_ready()


async def publish(client: Client, text: str) -> None:
    answer = await client.ask("POST", "/v1/runbooks", {"yaml": text})
    assert answer.status == 201, answer


async def make_batch(client: Client, name: str, keys: Sequence[str]) -> None:
    csv = "Upn\n" + "".join(f"{key}\n" for key in keys)
    answer = await client.ask("POST", "/v1/batches", {"runbook": name, "csv": csv})
    assert answer.status == 201, answer


class Killer:
    """Kills one of those that have come up, after a moment, and starts it again at once."""

    def __init__(self, look: Look, rng: random.Random) -> None:
        self._look = look
        self._rng = rng
        self.kills = 0
        self.kills_at_work = 0
        """Those that came while steps were under way."""

    async def kill_one(self, processes: Sequence[Process]) -> None:
        await asyncio.sleep(self._rng.uniform(0.3, 0.8))
        async with asyncio.timeout(READY_SECONDS_MAX):
            while not (ready := [one for one in processes if one.is_ready()]):
                await asyncio.sleep(0.05)
        self.kills += 1
        self.kills_at_work += bool(await self._look(f"SELECT id FROM step_executions WHERE {IS_OPEN} LIMIT 1"))
        victim = self._rng.choice(ready)
        victim.kill()
        victim.start()


async def until_ended(look: Look, members_count: int, processes: Sequence[Process]) -> None:
    """Until every batch has ended, everybody is in one, and no message waits for anybody."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_SECONDS_MAX
    while True:
        for process in processes:
            process.is_ready()  # Raises if it has ended by itself.
        open_batches = await look("SELECT COUNT(*) FROM batches WHERE completed_at IS NULL")
        count = await look("SELECT COUNT(*) FROM batch_members")
        queued = await look("SELECT COUNT(*) FROM messages WHERE state = 'QUEUED'")
        outbox = await look("SELECT COUNT(*) FROM runbook_outbox")
        state = open_batches[0][0], count[0][0] - members_count, queued[0][0], outbox[0][0]
        if state == (0, 0, 0, 0):
            return
        if loop.time() > deadline:
            steps = await look("SELECT step_name, status, COUNT(*) FROM step_executions GROUP BY 1, 2 ORDER BY 1, 2")
            raise AssertionError(f"open batches, members too many, queued, outbox: {state}; {list(steps)}")
        await asyncio.sleep(0.2)


# --- Afterwards ------------------------------------------------------------------------------------------------------


def _expected(member: str, phase: str, function: str) -> tuple[str, int, int, int]:
    """Status, dispatches, retries and polls of a step."""
    is_broken, place = member.startswith("broken"), PHASES.index(phase)
    if is_broken and (place == 2 or (place == 1 and function == "Watch")):
        return "cancelled", 0, 0, 0
    if function == "Watch":
        return "succeeded", 2, 0, 1
    if function == "Change" and phase == "two":
        return ("rolled_back", 2, 1, 0) if is_broken else ("succeeded", 2, 1, 0) if is_flaky(member) else _ONCE
    return _ONCE


_ONCE = ("succeeded", 1, 0, 0)


async def audit(look: Look, keys: Sequence[str], journals: Sequence[Path]) -> None:
    memberships = Counter(row[0] for row in await look("SELECT member_key FROM batch_members WHERE status = 'active'"))
    assert memberships == Counter(keys), "everybody is in one batch"
    said = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    calls: dict[str, set[str]] = {}
    for one in said:
        if "function" in one:
            calls.setdefault(one["key"], set()).add(one["job"])
    await _audit_steps(look, len(keys), calls)
    await _audit_rollbacks(look, [key for key in keys if key.startswith("broken")], calls)
    await _audit_batches(look)
    _audit_effects(keys, said)
    assert not await look("SELECT message_id, reason FROM messages WHERE state = 'DEAD'"), "no dead letters"


async def _audit_steps(look: Look, count: int, calls: dict[str, set[str]]) -> None:
    rows = await look(
        "SELECT e.id, m.member_key, p.phase_name, e.function_name, e.status, e.dispatch_count, e.retries_used,"
        " e.poll_count FROM step_executions e JOIN batch_members m ON m.id = e.batch_member_id"
        " JOIN phase_executions p ON p.id = e.phase_execution_id"
    )
    assert len(rows) == count * 9
    for number, member, phase, function, *found in rows:
        expected = _expected(member, phase, function)
        assert tuple(found) == expected, f"{member}, {phase}, {function}: {found}, not {expected}"
        jobs = {f"step-{number}-a{dispatch}" for dispatch in range(1, expected[1] + 1)}
        assert calls.get(f"step-{number}", set()) == jobs, f"{member}, {phase}, {function}"


async def _audit_rollbacks(look: Look, broken: Sequence[str], calls: dict[str, set[str]]) -> None:
    rows = await look(
        "SELECT f.id, m.member_key, f.kind, f.status, f.dispatch_count FROM followup_executions f"
        " JOIN batch_members m ON m.id = f.batch_member_id"
    )
    assert Counter(row[1] for row in rows) == Counter(broken)
    for number, _, *found in rows:
        assert found == ["rollback", "succeeded", 1]
        assert calls[f"rollback-{number}"] == {f"rollback-{number}-a1"}


async def _audit_batches(look: Look) -> None:
    broken = {row[0] for row in await look("SELECT batch_id FROM batch_members WHERE member_key LIKE 'broken%'")}
    for batch_id, status in await look("SELECT id, status FROM batches"):
        assert status == ("failed" if batch_id in broken else "completed"), f"batch {batch_id} is {status}"


def _audit_effects(keys: Sequence[str], said: Sequence[Mapping[str, Any]]) -> None:
    """The work was done once for each member, phase and function: by whichever life of the worker."""
    effects = Counter((one["member"], one["phase"], one["function"]) for one in said if one.get("effect"))
    expected: Counter[tuple[str, str, str]] = Counter()
    for key in keys:
        for phase in PHASES:
            for function in ("Prepare", "Change", "Watch"):
                expected[key, phase, function] = _expected(key, phase, function)[0] == "succeeded"
        expected[key, "", "Undo"] = key.startswith("broken")
    assert effects == +expected
    accepted = Counter(one["answered"] for one in said if one.get("outcome") == "APPLIED")
    assert accepted, "results were taken"
    assert set(accepted.values()) == {1}, "no result was accepted twice"
