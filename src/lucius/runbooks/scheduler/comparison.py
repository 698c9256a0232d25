"""Who is in the source and who is in batches: what follows from the difference. Pure.

By a time column, a member belongs to the batch that starts at its time. With `immediate` it belongs to the batch it is
in, or else to one that starts now. A member that was in an ended batch with the same start does not begin again,
unless it had left the source and came back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from msgspec import Struct, field

from lucius.domain.time import Instant
from lucius.runbooks.scheduler.batching import IMMEDIATE_MILLIS
from lucius.runbooks.sources.rows import Members


class Membership(Struct, frozen=True):
    member_id: int
    batch_id: int
    by_hand: bool = False
    """Put in by an operator, and therefore not the source's to take out."""


class Standing(Struct, frozen=True, kw_only=True):
    """What the tables say of one runbook's batches that come from its source."""

    open_batches: Mapping[int, Instant]
    """Batch and its start."""
    members: Mapping[str, Membership]
    """Active members of open batches; each member is in one at most."""
    finished: Set[tuple[str, Instant]]
    """Members of ended batches, and those whom an operator took out of one, with the batch's start."""
    ever: Set[str]
    """The same of all batches, whatever their start, and members of open ones."""
    known: Mapping[str, tuple[str, Instant | None, bool]]
    """The data table: digest, batch time, and whether the member was in the source when it was last read."""


class Comparison(Struct, kw_only=True):
    new_rows: list[str] = field(default_factory=list)
    changed_rows: list[str] = field(default_factory=list)
    gone_rows: list[str] = field(default_factory=list)
    """Keys of the data table that the source no longer has."""
    joins: dict[int, list[str]] = field(default_factory=dict)
    """Open batch, and the members that it gains."""
    batches: dict[Instant, list[str]] = field(default_factory=dict)
    """Starts of new batches, and their members."""
    removals: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """Open batch, and the members that it loses."""
    returning: set[str] = field(default_factory=set)
    """Joining members who had left the source. That they are back may be known only once they have joined: whoever
    comes after a crash would take them for members of an ended batch, who do not begin again."""

    @property
    def is_empty(self) -> bool:
        return not (self.new_rows or self.changed_rows or self.gone_rows or self.joins or self.batches or self.removals)


def compare(found: Members, standing: Standing, now: Instant, is_immediate: bool) -> Comparison:
    result = Comparison()
    _compare_rows(found, standing, result)
    by_start: dict[Instant, int] = {}
    for batch_id, start in standing.open_batches.items():
        by_start[start] = max(batch_id, by_start.get(start, 0))
    slot = now - now % IMMEDIATE_MILLIS
    for key, member in found.members.items():
        wanted = slot if member.batch_time is None else member.batch_time
        current = standing.members.get(key)
        if current is not None and (
            is_immediate or current.by_hand or standing.open_batches[current.batch_id] == wanted
        ):
            continue
        if current is not None:
            result.removals.setdefault(current.batch_id, []).append((current.member_id, key))
        elif _has_been(key, wanted, standing, is_immediate):
            continue
        if _came_back(key, standing):
            result.returning.add(key)
        if wanted in by_start:
            result.joins.setdefault(by_start[wanted], []).append(key)
        else:
            result.batches.setdefault(wanted, []).append(key)
    for key, gone in standing.members.items():
        if is_gone(key, found) and not gone.by_hand:
            result.removals.setdefault(gone.batch_id, []).append((gone.member_id, key))
    return result


def is_gone(key: str, found: Members) -> bool:
    """Whether the source certainly has this member no more; a row that could not be read may be anybody's."""
    return key not in found.members and key not in found.unusable and not found.keyless_count


def _has_been(key: str, wanted: Instant, standing: Standing, is_immediate: bool) -> bool:
    if _came_back(key, standing):
        return False
    return key in standing.ever if is_immediate else (key, wanted) in standing.finished


def _came_back(key: str, standing: Standing) -> bool:
    known = standing.known.get(key)
    return known is not None and not known[2]


def _compare_rows(found: Members, standing: Standing, result: Comparison) -> None:
    known = standing.known
    for key, member in found.members.items():
        before = known.get(key)
        if before is None:
            result.new_rows.append(key)
        elif before != (member.digest.hex(), member.batch_time, True):
            result.changed_rows.append(key)
    result.gone_rows += [key for key, (_, _, current) in known.items() if current and is_gone(key, found)]


def shrunk_too_far(before: int | None, count: int, share_min: float, confirmed: int | None) -> bool:
    """Whether so many members are missing all at once that the source is more likely broken than right."""
    if not before or count >= before:
        return False
    if confirmed is not None and count >= confirmed:
        return False
    return count == 0 or count < before * share_min


def chunks(keys: Collection[str], size: int) -> list[list[str]]:
    ordered = list(keys)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]
