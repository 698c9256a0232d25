"""The table `batch_changes`: which steps and members of a batch each turn has changed, under consecutive numbers.

A turn holds the lock on its batches, so the numbers of a batch are given and committed one after another: whoever has
read a number has seen everything up to it. The rows say where to look and not what is there; what is there is read from
the tables. Only the newest rows are kept. A reader that finds a number missing reads everything.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from lucius.ports.database import Fetch, Run, Script

KEPT_MAX = 256
"""Changes of a batch that are kept."""
PRUNE_EVERY = 64
NAMED_MAX = 2_000
"""Steps and members that one change names; with more, anything may have changed."""
FOLLOWED_MAX = 10_000
"""Steps and members that are read one by one for a follower; with more, everything is read."""

INSERT = "INSERT INTO batch_changes (batch_id, change_number, changed, counted) VALUES ($1, $2, $3, $4)"
PRUNE = "DELETE FROM batch_changes WHERE batch_id = $1 AND change_number <= $2"
NEWEST = "SELECT MAX(change_number) FROM batch_changes WHERE batch_id = $1"
NEWEST_OF = (
    "SELECT batch_id, MAX(change_number) FROM batch_changes WHERE batch_id = ANY($1::bigint[]) GROUP BY batch_id"
)
SINCE = (
    "SELECT changed FROM batch_changes WHERE batch_id = $1 AND change_number > $2 AND change_number <= $3"
    " ORDER BY change_number"
)


class Changed(Struct):
    steps: set[int]
    members: set[int]
    """Of these, any step may have changed."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Changed).decode


class ChangeLog:
    """What one transaction has changed, by batch."""

    def __init__(self) -> None:
        self._changed: dict[int, Changed | None] = {}

    @property
    def batch_ids(self) -> set[int]:
        return set(self._changed)

    def touch(self, batch_id: int) -> Changed | None:
        """Something about the batch has changed, be it none of its steps and members."""
        return self._changed.setdefault(batch_id, Changed(set(), set()))

    def step(self, batch_id: int, step_id: int) -> None:
        found = self.touch(batch_id)
        if found is not None:
            found.steps.add(step_id)

    def members(self, batch_id: int, member_ids: Iterable[int]) -> None:
        found = self.touch(batch_id)
        if found is not None:
            found.members.update(member_ids)

    def anything(self, batch_id: int) -> None:
        """More has changed than is worth naming."""
        self._changed[batch_id] = None

    def write(self, batch_id: int, number: int, ended: bool, counted: bool) -> Script[None]:
        """Record the changes of a locked batch under its next number. An ended batch keeps none but the last.
        `counted`: whether `step_counts` holds for the batch."""
        found = self._changed[batch_id]
        if found is not None and len(found.steps) + len(found.members) > NAMED_MAX:
            found = None
        yield Run(INSERT, [(batch_id, number, None if found is None else _encode(found).decode(), counted)])
        if ended:
            yield Run(PRUNE, [(batch_id, number - 1)])
        elif number % PRUNE_EVERY == 0:
            yield Run(PRUNE, [(batch_id, number - KEPT_MAX)])


def newest(batch_id: int) -> Script[int]:
    number: int | None = (yield Fetch(NEWEST, [batch_id]))[0][0]
    return number or 0


def newest_of(batch_ids: Iterable[int]) -> Script[dict[int, int]]:
    """The newest number of each batch that has one."""
    return {row[0]: row[1] for row in (yield Fetch(NEWEST_OF, [sorted(batch_ids)]))}


def between(batch_id: int, since: int, until: int) -> Script[Changed | None]:
    """What has changed after `since`, up to `until`; None if that is no longer known, or too much to name."""
    rows = yield Fetch(SINCE, (batch_id, since, until))
    if len(rows) != until - since:
        return None
    every = Changed(set(), set())
    for (text,) in rows:
        if text is None:
            return None
        one = _decode(text)
        every.steps |= one.steps
        every.members |= one.members
        if len(every.steps) + len(every.members) > FOLLOWED_MAX:
            return None
    return every
