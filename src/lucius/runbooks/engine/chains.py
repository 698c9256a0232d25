"""Lists of steps that run in order, one at a time: init of a batch, rollback of a step, removal of a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from lucius.ports.database import Script
from lucius.runbooks.core import making
from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import (
    ACTIVE,
    BECAUSE_FAILED,
    BECAUSE_INIT_FAILED,
    FAILED,
    INIT_DISPATCHED,
    PENDING,
    SKIPPED,
    SUCCEEDED,
    Kind,
)
from lucius.runbooks.engine.progress import close_batch, end_batch
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, executions, followups, inits, phases, steps
from lucius.runbooks.store.followups import NewFollowup

# --- Init ------------------------------------------------------------------------------------------------------------


def advance_init(turn: Turn, batch: Batch) -> Script[None]:
    """Make the next init step ready. When all have succeeded the batch is active; when one fails the batch fails."""
    if batch.status != INIT_DISPATCHED:
        return
    chain = turn.changes.hold((yield from inits.of_version(batch.id, batch.version)))
    current = next((one for one in chain if one.status != SUCCEEDED), None)
    if current is None:
        yield from batches.set_status(batch, ACTIVE)
        turn.note("batch-active", batch)
        yield from close_batch(turn, batch)
    elif current.is_open:
        if current.status == PENDING:  # A step that polls or waits for its retry is not due yet.
            current.make_ready()
    else:
        reason = f"init step {current.step_name}: {current.error_message or current.status}"
        yield from stop_phases(turn, batch, BECAUSE_INIT_FAILED, reason)
        yield from end_batch(turn, batch, FAILED, reason)


def stop_phases(turn: Turn, batch: Batch, cause: str, reason: str) -> Script[None]:
    """Cancel phases that have not begun."""
    yield from phases.skip_pending(batch.id, turn.now, cause, reason)
    yield from steps.drop_unbegun(batch.id)
    turn.log.anything(batch.id)
    turn.note("phases-skipped", batch, reason=reason, status=SKIPPED)


# --- Rollbacks and removals ------------------------------------------------------------------------------------------


class ChainOf(Struct, frozen=True, kw_only=True):
    """What a chain belongs to."""

    parent_id: int
    """For a rollback, the failed step; for a removal, the member."""
    round: int
    """The attempt of its cause that it belongs to."""
    member_id: int | None
    phase_id: int | None
    version: int
    list_name: str


def begin(
    turn: Turn,
    batch: Batch,
    kind: Kind,
    of: ChainOf,
    wanted: Sequence[Step],
    runbook: Runbook,
    data: Mapping[str, Any] | None,
) -> Script[None]:
    """Create a chain of these steps."""
    special = making.specials(batch)
    rows = []
    for index, step in enumerate(wanted):
        outputs = known_outputs(runbook, kind, of.list_name, index)
        if of.member_id is None:  # An init step: it gets the outputs of init.
            outputs |= known_outputs(runbook, "init", "init", len(runbook.init))
        shared = making.new_execution(batch.id, step, index, data, special, outputs)
        rows.append(
            NewFollowup(
                kind=kind, parent_id=of.parent_id, round=of.round, member_id=of.member_id, phase_id=of.phase_id,
                runbook_version=of.version, list_name=of.list_name, **shared,
            )
        )  # fmt: skip
    if rows:
        yield from followups.insert(rows)
        turn.note(f"{kind}-started", batch, of.member_id, list=of.list_name, steps=[step.name for step in wanted])


def advance(turn: Turn, batch: Batch) -> Script[None]:
    """Make the next step of every chain that may continue ready; after the last, notify its parent."""
    touched = turn.touch(batch.id)
    if not touched.members and not touched.is_init:
        return
    members = sorted(touched.members)
    found = yield from followups.open_of_members(members)
    if touched.is_init:
        found += yield from followups.open_of_init(batch.id)
    rows = turn.changes.hold(found)
    chains: dict[tuple[str, int | None, int], list[Execution]] = {}
    for one in rows:
        chains.setdefault((one.kind, one.parent_id, one.round), []).append(one)
    if not chains:
        return
    busy = (yield from steps.busy_members(members)) if members else set()
    rolling_back = {one.member_id for one in rows if one.kind == "rollback" and one.is_open}
    for (kind, _, _), chain in chains.items():
        first = min(chain, key=lambda one: one.step_index)
        waits = kind == "removal" and (first.member_id in busy or first.member_id in rolling_back)
        if first.status == PENDING and not waits:
            first.make_ready()


def conclude(turn: Turn, batch: Batch, ended: Sequence[Execution]) -> Script[None]:
    """Chain steps have ended: cancel those after a failure; a finished rollback marks its parent."""
    for one in ended:
        chain = turn.changes.hold((yield from followups.chain_of(one)))
        if one.has_failed:
            reason = f"{one.kind} step {one.step_name} failed: {one.error_message}"
            for later in chain:
                later.cancel(turn.now, BECAUSE_FAILED, reason)
            turn.note(f"{one.kind}-failed", batch, one.member_id, reason=reason)
            if one.kind == "rollback":
                parent = yield from _parent(turn, one)
                parent.error_message = f"{parent.error_message}; {reason}"
        elif all(step.status == SUCCEEDED for step in chain):
            turn.note(f"{one.kind}-done", batch, one.member_id, list=one.list_name)
            if one.kind == "rollback":
                parent = yield from _parent(turn, one)
                if parent.dispatch_count == one.round and parent.roll_back():
                    turn.count(parent)


def _parent(turn: Turn, rollback: Execution) -> Script[Execution]:
    """The step that a rollback undoes: a member's step, or one of init."""
    assert rollback.parent_id is not None
    found = yield from executions.by_ids("init" if rollback.member_id is None else "step", [rollback.parent_id])
    return turn.changes.hold(found)[0]
