"""Members whose date moves in the source.

A member of whom nothing was sent leaves its batch and joins the one of its new date. A member of whom steps were sent
is held instead, alone: removal steps and a second booking would undo and repeat what was done. Held, it starts no step,
no barrier waits for it, and its batch does not end, until somebody confirms the move or keeps the member where it is,
or the source takes the move back.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.notifications import Cause
from lucius.ports.database import Script
from lucius.runbooks.core.comparison import Move
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import Batch, Member
from lucius.runbooks.engine.batching import remove_members
from lucius.runbooks.engine.progress import close_batch
from lucius.runbooks.engine.turn import Turn, said
from lucius.runbooks.store import moves


def move_members(batch_id: int, moving: Sequence[Move], turn: Turn) -> Script[set[str]]:
    """Hold those that have begun and remove the others; returns the keys of those held."""
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    begun = yield from moves.begun([move.member_id for move in moving])
    leaving = [(move.member_id, move.key) for move in moving if move.member_id not in begun]
    if leaving:
        reason = "the source has moved it to another batch time"
        yield from remove_members(turn, batch, leaving, reason, by_source=True)
    held = [move for move in moving if move.member_id in begun]
    for move in held:
        turn.touch(batch_id).phases |= yield from moves.hold(move.member_id, move.to, turn.now)
        detail = {"member": move.key, "from": utc(batch.start), "to": utc(move.to)}
        turn.note("member-move-held", batch, move.member_id, **detail)
        reason = f"the source moves it from {utc(batch.start)} to {utc(move.to)}: confirm the move, or keep the member"
        yield from turn.notify(Cause.MEMBER_HELD, batch, member=move.key, reason=reason)
    return {move.key for move in held}


def withdraw_moves(batch_id: int, staying: Sequence[tuple[int, str]], turn: Turn) -> Script[None]:
    """The source has the date of their batch again."""
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    yield from moves.forget([member_id for member_id, _ in staying])
    for member_id, key in staying:
        turn.note("member-move-withdrawn", batch, member_id, member=key)
    yield from _go_on(turn, batch, [member_id for member_id, _ in staying])


def confirm_moves(turn: Turn, batch: Batch, held: Sequence[Member], reason: str = "") -> Script[None]:
    """Remove these members as the source asks; its next reading books them at their new date."""
    for member in held:
        detail = _dates(batch, member) | said(reason)
        turn.note("member-move-confirmed", batch, member.id, member=member.key, **detail)
    leaving = [(member.id, member.key) for member in held]
    yield from remove_members(turn, batch, leaving, "its move to another date was confirmed", by_source=True)


def keep_members(turn: Turn, batch: Batch, held: Sequence[Member], reason: str = "") -> Script[None]:
    """They go on in their batch, whatever date the source has for them now."""
    yield from moves.keep([member.id for member in held])
    for member in held:
        detail = _dates(batch, member) | said(reason)
        turn.note("member-move-kept", batch, member.id, member=member.key, **detail)
    yield from _go_on(turn, batch, [member.id for member in held])


def _go_on(turn: Turn, batch: Batch, member_ids: Sequence[int]) -> Script[None]:
    turn.touch(batch.id).members.update(member_ids)
    yield from close_batch(turn, batch)  # Its phases may have ended meanwhile.


def _dates(batch: Batch, member: Member) -> dict[str, str]:
    return {"from": utc(batch.start), "to": utc(batch.start if member.move_to is None else member.move_to)}
