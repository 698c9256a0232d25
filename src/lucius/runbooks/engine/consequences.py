"""From facts to consequences: what a turn does with each batch once all facts are applied."""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core.records import Batch
from lucius.runbooks.engine import chains
from lucius.runbooks.engine.cancelling import cancel_some
from lucius.runbooks.engine.dispatch import dispatch
from lucius.runbooks.engine.failures import fail_members, hold_where_exceeded
from lucius.runbooks.engine.progress import progress
from lucius.runbooks.engine.turn import Turn

ROUNDS_MAX = 200
"""Sending may itself end steps (a template variable without a value), which has consequences again: at most one round
per step of the longest path."""


def apply_consequences(turn: Turn) -> Script[None]:
    for batch_id in sorted(turn.touched):
        batch = turn.batches.get(batch_id)
        if batch is None:
            continue
        if batch.is_cancelling:
            yield from turn.changes.write()
            yield from cancel_some(turn, batch)
        yield from _follow(turn, batch)


def _follow(turn: Turn, batch: Batch) -> Script[None]:
    for _ in range(ROUNDS_MAX):
        ended = [one for one in turn.ended if one.batch_id == batch.id]
        turn.ended = [one for one in turn.ended if one.batch_id != batch.id]
        failed = [one for one in ended if one.kind in ("step", "init") and one.has_failed]
        if failed:
            yield from fail_members(turn, batch, failed)
        yield from chains.conclude(turn, batch, [one for one in ended if one.kind in ("rollback", "removal")])
        yield from turn.changes.write()
        if failed:
            phase_ids = {one.phase_id for one in failed if one.phase_id is not None}
            yield from hold_where_exceeded(turn, batch, sorted(phase_ids))
        yield from chains.advance(turn, batch)
        if turn.touch(batch.id).is_init:
            yield from chains.advance_init(turn, batch)
        yield from turn.changes.write()
        yield from progress(turn, batch)
        turn.touched[batch.id].clear()
        yield from dispatch(turn, batch)
        yield from turn.changes.write()
        if not any(one.batch_id == batch.id for one in turn.ended):
            return
    turn.unfinished.add(batch.id)
