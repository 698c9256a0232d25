"""A transaction writes back the executions that it has changed, and no others."""

from __future__ import annotations

from typing import Any

from harness import Harness, runbook

from lucius.ports.database import Run, Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.store import steps
from lucius.runbooks.store.batch_changes import ChangeLog
from lucius.runbooks.store.changes import Changes
from lucius.runbooks.store.step_counts import CountChanges


def written(script: Script[None]) -> list[tuple[int, str]]:
    """Execution and the status that each row was guarded by."""
    found: list[tuple[int, str]] = []
    for statement in script:
        assert isinstance(statement, Run)
        found += [(row[0], row[1]) for row in statement.rows]
    return found


async def executions(harness: Harness) -> list[Execution]:
    await harness.publish(runbook({"one": ["a", "b"]}))
    await harness.batch("moves", ["x", "y"])
    await harness.tick()

    def script() -> Script[Any]:
        return (yield from steps.of_members([1, 2]))

    found: list[Execution] = await harness.database.read(script)
    assert len(found) == 4
    return found


async def test_only_what_has_changed_is_written(harness: Harness) -> None:
    changes = Changes(ChangeLog(), CountChanges())
    held = changes.hold(await executions(harness))
    assert held[1].make_ready()
    held[2].cancel(harness.clock.now(), "removed", "gone")
    assert written(changes.write()) == [(held[1].id, "pending"), (held[2].id, "pending")]
    assert written(changes.write()) == []


async def test_what_is_changed_back_is_not_written(harness: Harness) -> None:
    changes = Changes(ChangeLog(), CountChanges())
    [first, *_] = changes.hold(await executions(harness))
    first.make_ready()
    first.ready = False
    assert written(changes.write()) == []


async def test_what_passes_through_is_written_twice(harness: Harness) -> None:
    changes = Changes(ChangeLog(), CountChanges())
    [first, *_] = changes.hold(await executions(harness))
    changes.pass_through(first)
    first.refuse(harness.clock.now(), "no such variable")

    def script() -> Script[None]:
        yield from changes.write()

    await harness.database.write(script)
    assert await harness.value("SELECT status FROM step_executions WHERE id = $1", first.id) == "failed"
