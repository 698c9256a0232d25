"""The order in which rows of `statements.READY_ACROSS` are taken: topics take turns, and within a topic its tenants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lucius.sql.database import Row

_SUBSCRIPTION, _TENANT, _PLACE, _SHARE = 5, 6, 7, 8


def in_turns(lines: Sequence[Sequence[Row]]) -> Iterator[Row]:
    """One from each line, then the next from each."""
    for place in range(max((len(line) for line in lines), default=0)):
        for line in lines:
            if place < len(line):
                yield line[place]


def tenants_in_turns(rows: Sequence[Row]) -> list[Row]:
    """The rows of one subscription."""
    by_place: dict[int, list[Row]] = {}
    for row in rows:
        by_place.setdefault(row[_PLACE], []).append(row)
    return list(in_turns([by_place[place] for place in sorted(by_place)]))


def tenants_with_more(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """Subscription and tenant of those who got their whole share, and so may have more."""
    counts: dict[tuple[int, str], int] = {}
    shares: dict[tuple[int, str], int] = {}
    for row in rows:
        key = (row[_SUBSCRIPTION], row[_TENANT])
        counts[key] = counts.get(key, 0) + 1
        shares[key] = row[_SHARE]
    return [key for key, count in counts.items() if count >= shares[key]]
