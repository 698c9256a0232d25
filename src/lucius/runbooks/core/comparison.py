"""Compares the members in the source with those in batches, and derives the changes. Pure.

With a time column, a member belongs to the batch that starts at its time. With `immediate` it belongs to the batch it
is in, or else to one that starts now. A member of an ended batch with the same start does not begin again, unless it
left the source and came back. A missing member has left only after it has been missing for a while: a single reading
may have coincided with a write to the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from msgspec import Struct, field

from lucius.domain.time import Instant, after
from lucius.runbooks.core.due_times import IMMEDIATE_MILLIS
from lucius.runbooks.core.records import Absence
from lucius.runbooks.core.source_members import Members


class Membership(Struct, frozen=True):
    member_id: int
    batch_id: int
    by_hand: bool = False
    """Added by an operator, so the source cannot remove it."""
    move_to: Instant | None = None
    """The date for which it is held, or for which an operator kept it in its batch."""


class Move(Struct, frozen=True):
    """A member whose date in the source is no longer that of its batch."""

    member_id: int
    key: str
    to: Instant


class StoredState(Struct, frozen=True, kw_only=True):
    """The stored state of one runbook's batches that come from its source."""

    open_batches: Mapping[int, Instant]
    """Batch and its start."""
    members: Mapping[str, Membership]
    """Active members of open batches; each is in at most one."""
    finished: Set[tuple[str, Instant]]
    """Members of ended batches, and members that an operator removed, with the batch's start; and members that an
    operator kept in their batch, with the date that they did not move to."""
    ever: Set[str]
    """The same for all batches, whatever their start, and members of open ones."""
    known: Mapping[str, tuple[str, Instant | None, bool]]
    """The data table: digest, batch time, and whether the member counts as present in the source."""
    absences: Mapping[str, Absence]
    """Members missing from the previous reading."""


class Missing(Struct, frozen=True):
    key: str
    absence: Absence
    membership: Membership | None
    """The open batch; None if the member is only in the data table."""

    @property
    def can_be_removed(self) -> bool:
        """Whether it is in a batch that the source could remove it from."""
        return self.membership is not None and not self.membership.by_hand


class Comparison(Struct, kw_only=True):
    new_rows: list[str] = field(default_factory=list)
    changed_rows: list[str] = field(default_factory=list)
    gone_rows: list[str] = field(default_factory=list)
    """Keys of the data table that have left the source."""
    missing: list[Missing] = field(default_factory=list)
    """Members missing for the first time."""
    found_again: list[Missing] = field(default_factory=list)
    """Members missing from the previous reading that are back."""
    left: list[str] = field(default_factory=list)
    """Members missing for long enough to count as gone."""
    joins: dict[int, list[str]] = field(default_factory=dict)
    """Open batch, and the members that join it."""
    batches: dict[Instant, list[str]] = field(default_factory=dict)
    """Starts of new batches, and their members."""
    removals: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """Open batch, and the members that leave it because the source no longer has them."""
    moves: dict[int, list[Move]] = field(default_factory=dict)
    """Open batch, and the members whose date moves. They also join another batch, unless they are held."""
    withdrawn: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """Open batch, and its members that were held or kept for another date and have the batch's date again."""
    returning: set[str] = field(default_factory=set)
    """Joining members that had left the source. Their return is recorded only after they have joined: after a crash
    in between, they would otherwise count as members of an ended batch, which do not begin again."""


def compare(
    found: Members, stored: StoredState, now: Instant, is_immediate: bool, absence_seconds: float
) -> Comparison:
    result = Comparison()
    _compare_absences(found, stored, result, now, absence_seconds)
    _compare_rows(found, stored, result)
    by_start: dict[Instant, int] = {}
    for batch_id, start in stored.open_batches.items():
        by_start[start] = max(batch_id, by_start.get(start, 0))
    slot = now - now % IMMEDIATE_MILLIS
    for key, member in found.members.items():
        wanted = slot if member.batch_time is None else member.batch_time
        current = stored.members.get(key)
        if current is not None and _stays(current, wanted, stored, is_immediate):
            if current.move_to not in (None, wanted):
                result.withdrawn.setdefault(current.batch_id, []).append((current.member_id, key))
            continue
        if current is not None:
            result.moves.setdefault(current.batch_id, []).append(Move(current.member_id, key, wanted))
        elif _has_been(key, wanted, stored, is_immediate):
            continue
        if _came_back(key, stored):
            result.returning.add(key)
        if wanted in by_start:
            result.joins.setdefault(by_start[wanted], []).append(key)
        else:
            result.batches.setdefault(wanted, []).append(key)
    for key in result.left:
        gone = stored.members.get(key)
        if gone is not None and not gone.by_hand:
            result.removals.setdefault(gone.batch_id, []).append((gone.member_id, key))
    return result


def _stays(current: Membership, wanted: Instant, stored: StoredState, is_immediate: bool) -> bool:
    if is_immediate or current.by_hand:
        return True
    return wanted in (stored.open_batches[current.batch_id], current.move_to)


def _compare_absences(
    found: Members, stored: StoredState, result: Comparison, now: Instant, absence_seconds: float
) -> None:
    held = {key for key, one in stored.members.items() if not one.by_hand}
    held |= {key for key, (_, _, current) in stored.known.items() if current}
    gone = {key for key in held if is_gone(key, found)}
    for key in sorted(gone):
        before = stored.absences.get(key)
        absence = before or Absence(now, after(now, absence_seconds))
        if absence.removal_at <= now:
            result.left.append(key)
        elif before is None:
            result.missing.append(Missing(key, absence, stored.members.get(key)))
    if not found.keyless_count:  # A row without a key may be any member's.
        back = sorted(stored.absences.keys() - gone)
        result.found_again += [Missing(key, stored.absences[key], stored.members.get(key)) for key in back]


def is_gone(key: str, found: Members) -> bool:
    """Whether the source certainly lacks this member; an unreadable row may be any member's."""
    return key not in found.members and key not in found.unusable and not found.keyless_count


def _has_been(key: str, wanted: Instant, stored: StoredState, is_immediate: bool) -> bool:
    if _came_back(key, stored):
        return False
    return key in stored.ever if is_immediate else (key, wanted) in stored.finished


def _came_back(key: str, stored: StoredState) -> bool:
    known = stored.known.get(key)
    return known is not None and not known[2]


def _compare_rows(found: Members, stored: StoredState, result: Comparison) -> None:
    known = stored.known
    for key, member in found.members.items():
        before = known.get(key)
        if before is None:
            result.new_rows.append(key)
        elif before != (member.digest.hex(), member.batch_time, True):
            result.changed_rows.append(key)
    result.gone_rows += [key for key in result.left if key in known and known[key][2]]


def shrunk_too_far(before: int | None, count: int, share_min: float, confirmed: int | None) -> bool:
    """Whether so many members are missing at once that the source is probably broken."""
    if not before or count >= before:
        return False
    if confirmed is not None and count >= confirmed:
        return False
    return count == 0 or count < before * share_min


def chunks(keys: Collection[str], size: int) -> list[list[str]]:
    ordered = list(keys)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]
