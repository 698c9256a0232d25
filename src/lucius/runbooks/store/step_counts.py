"""The table `step_counts`: how many steps at each place of a phase are in which status, so that nobody counts them.

Every turn holds the locks of its batches, adds what it has changed, and says so in its row of `batch_changes`. A
program older than the table says nothing there; then the counts are not used until they are made anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from lucius.ports.database import Fetch, Row, Run, Script
from lucius.runbooks.core.batch_waits import StepCount
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import DISPATCHED, POLLING, STEP
from lucius.runbooks.store.conditions import IS_OPEN

PLACES: dict[tuple[str, bool], int] = {
    **{(status, in_flight): place for place, status in enumerate(STEP) for in_flight in (False, True)},
    (DISPATCHED, True): len(STEP),
    (POLLING, True): len(STEP) + 1,
}
"""Which column counts steps of this status, with and without a job in flight."""
COLUMNS = (*STEP, "dispatched_in_flight", "polling_in_flight")

_GROUPS = "s.phase_execution_id, s.step_index, s.step_name, s.status, s.in_flight"
_COUNT = f"SELECT {_GROUPS}, COUNT(*) FROM phase_executions p JOIN step_executions s ON s.phase_execution_id = p.id"
BY_ROWS = f"{_COUNT} WHERE p.batch_id = $1 GROUP BY {_GROUPS}"
# Whoever else makes steps makes them pending, and at the barrier.
_IS_NOT_ADOPTED = f"s.{IS_OPEN} AND s.catching_up = FALSE AND s.batch_id = 0"
PHASES_NOT_ADOPTED = (
    "SELECT p.id FROM phase_executions p WHERE p.batch_id = $1 AND p.member_count IS NULL AND (SELECT s.step_index"
    f" FROM step_executions s WHERE s.phase_execution_id = p.id AND {_IS_NOT_ADOPTED} ORDER BY s.step_index LIMIT 1)"
    " IS NOT NULL"
)
"""Phases with steps of another scheduler that the orchestrator has not met yet: they are counted when it adopts them.
One look along an index for each phase: whether there are any is asked whenever a batch is shown."""
NOT_ADOPTED = f"{_COUNT} WHERE p.id = ANY($1::bigint[]) AND {_IS_NOT_ADOPTED} GROUP BY {_GROUPS}"
ADOPTED = f"{_COUNT} WHERE p.batch_id = $1 AND NOT (p.member_count IS NULL AND s.batch_id = 0) GROUP BY {_GROUPS}"
READY = (
    "SELECT s.phase_execution_id, s.step_index, s.status, COUNT(*) FROM step_executions s"
    " WHERE s.batch_id = $1 AND s.ready = TRUE GROUP BY s.phase_execution_id, s.step_index, s.status"
)
OF_BATCH = (
    f"SELECT c.phase_execution_id, c.step_index, c.step_name, {', '.join(f'c.{name}' for name in COLUMNS)}"
    " FROM phase_executions p JOIN step_counts c ON c.phase_execution_id = p.id WHERE p.batch_id = $1"
    " ORDER BY c.phase_execution_id, c.step_index"
)
_ADD_PLACE = (
    f"INSERT INTO step_counts (phase_execution_id, step_index, step_name, {', '.join(COLUMNS)})"
    f" VALUES ($1, $2, $3, {', '.join('0' for _ in COLUMNS)})"
    " ON CONFLICT (phase_execution_id, step_index) DO NOTHING"
)
CHANGE = (
    f"UPDATE step_counts SET {', '.join(f'{name} = {name} + ${place}' for place, name in enumerate(COLUMNS, 3))}"
    " WHERE phase_execution_id = $1 AND step_index = $2"
)
_DROP_OF_BATCH = (
    "DELETE FROM step_counts WHERE phase_execution_id IN"
    " (SELECT p.id FROM phase_executions p WHERE p.batch_id = $1)"
)  # fmt: skip
_DROP_SKIPPED = (
    "DELETE FROM step_counts WHERE phase_execution_id IN"
    " (SELECT p.id FROM phase_executions p WHERE p.batch_id = $1 AND p.status = 'skipped')"
)
UNCOUNTED = (
    "SELECT b.id FROM batches b WHERE b.completed_at IS NULL AND EXISTS (SELECT 1 FROM batch_changes c"
    " WHERE c.batch_id = b.id AND c.counted = FALSE AND c.change_number = (SELECT MAX(n.change_number)"
    " FROM batch_changes n WHERE n.batch_id = b.id)) ORDER BY b.runbook_name, b.id LIMIT $1"
)


class CountChanges:
    """By how much one transaction changes the counts, by batch."""

    def __init__(self) -> None:
        self._net: dict[int, dict[tuple[int, int], list[int]]] = {}
        self._new: dict[tuple[int, int], str] = {}

    def moved(self, execution: Execution, status: str, in_flight: bool) -> None:
        """A step has changed from this state to what it is now."""
        before = PLACES[status, in_flight]
        after = PLACES[execution.status, bool(execution.in_flight)]
        if before != after:
            self._add(execution.batch_id, execution.phase_id or 0, execution.step_index, before, -1)
            self._add(execution.batch_id, execution.phase_id or 0, execution.step_index, after, 1)

    def changed(self, batch_id: int, phase_id: int, index: int, before: str, after: str, count: int) -> None:
        """So many steps without a job in flight went from one status to another."""
        self._add(batch_id, phase_id, index, PLACES[before, False], -count)
        self._add(batch_id, phase_id, index, PLACES[after, False], count)

    def made(self, batch_id: int, place: tuple[int, int, str], status: str, in_flight: bool, count: int) -> None:
        """So many new steps at this place: phase, index and name."""
        phase_id, index, name = place
        self._new[phase_id, index] = name
        self._add(batch_id, phase_id, index, PLACES[status, in_flight], count)

    def write(self, batch_ids: Iterable[int]) -> Script[None]:
        """Of these batches; the counts of the others are not kept."""
        kept = {key: net for batch_id in batch_ids for key, net in self._net.get(batch_id, {}).items()}
        new = [(*key, name) for key, name in sorted(self._new.items()) if key in kept]
        if new:
            yield Run(_ADD_PLACE, new, in_one_statement=True)
        rows = [(*key, *net) for key, net in sorted(kept.items()) if any(net)]
        if rows:
            yield Run(CHANGE, rows, in_one_statement=True)

    def _add(self, batch_id: int, phase_id: int, index: int, place: int, by: int) -> None:
        of_batch = self._net.setdefault(batch_id, {})
        net = of_batch.get((phase_id, index))
        if net is None:
            net = of_batch[phase_id, index] = [0] * len(COLUMNS)
        net[place] += by


def read(batch: Batch) -> Script[list[StepCount]]:
    """In the order of phases and steps."""
    counted: list[Row] = []
    if batch.is_counted:
        counted += states_of((yield Fetch(OF_BATCH, [batch.id])))
        phase_ids = [row[0] for row in (yield Fetch(PHASES_NOT_ADOPTED, [batch.id]))]
        if phase_ids:
            counted += yield Fetch(NOT_ADOPTED, [phase_ids])
    else:
        counted += yield Fetch(BY_ROWS, [batch.id])
    ready = {tuple(row[:3]): row[3] for row in (yield Fetch(READY, [batch.id]))}
    found = []
    for phase_id, index, name, status, in_flight, count in counted:
        waiting = 0 if in_flight else min(count, ready.get((phase_id, index, status), 0))
        for is_ready, number in ((True, waiting), (False, count - waiting)):
            if number:
                found.append(StepCount(phase_id, index, name, status, bool(in_flight), is_ready, number))
    return sorted(found, key=lambda one: (one.phase_id, one.step_index))


def states_of(found: Iterable[Row]) -> list[Row]:
    """One for each number: phase, index, name, status, whether in flight, count."""
    states = [*((status, False) for status in STEP), (DISPATCHED, True), (POLLING, True)]
    return [
        (*row[:3], status, in_flight, count)
        for row in found
        for (status, in_flight), count in zip(states, row[3:], strict=True)
    ]


def drop_skipped(batch_id: int) -> Script[None]:
    """The steps of the phases that were skipped are gone."""
    yield Run(_DROP_SKIPPED, [(batch_id,)])


def count_anew(batch_id: int) -> Script[None]:
    """Make the counts of a locked batch anew, from its steps."""
    yield Run(_DROP_OF_BATCH, [(batch_id,)])
    changes = CountChanges()
    for phase_id, index, name, status, in_flight, count in (yield Fetch(ADOPTED, [batch_id])):
        changes.made(batch_id, (phase_id, index, name), status, bool(in_flight), count)
    yield from changes.write([batch_id])


def uncounted(limit: int) -> Script[list[int]]:
    """Open batches that an older program was the last to change."""
    return [row[0] for row in (yield Fetch(UNCOUNTED, [limit]))]
