"""What engines look for in the index."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.azure.keys import decoded, instant, key, part, prefix_end
from lucius.azure.tables import Row
from lucius.domain.time import Instant
from lucius.ledgers.tables import hints, rows
from lucius.ledgers.tables.layouts import SHARDS, JobRef, shard_of
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import HeldLine

EXTRA_HINTS = 20
"""Read beyond what is asked for, because some may be outlived."""


class Finder:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def due(self, now: Instant, limit: int) -> list[str]:
        return await self._in_order("DUE", limit, end=key("DUE", instant(now + 1)))

    async def unsent(self, now: Instant | None, limit: int) -> list[str]:
        """Not held; `now`: only those that nobody claims then."""
        end = None if now is None else key("UNSENT", instant(now + 1))
        return await self._in_order("UNSENT", limit, end=end)

    async def outbox(self, limit: int) -> list[str]:
        return await self._in_order("OUTBOX", limit)

    async def held(self, line: HeldLine, engine: str, limit: int) -> list[str]:
        return await self._in_order(key(hints.held_in(line), part(engine)), limit)

    async def unacknowledged(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        return await self._after(hints.unacknowledged_by(engine), limit, after_id)

    async def undelivered(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        return await self._after(hints.undelivered_by(engine), limit, after_id)

    async def held_lines(self, limit: int) -> list[HeldLine]:
        """From one line to the next, however many wait in each."""
        found: dict[HeldLine, None] = {}

        async def of_shard(shard: int) -> list[HeldLine]:
            lines: list[HeldLine] = []
            first = "HELD:"
            while len(lines) < limit:
                page = await self._store.read_hints("HELD", first, limit=EXTRA_HINTS, shards=[shard])
                if not page:
                    break
                for row in await self.valid(page):
                    line = _read_line(row)
                    if line not in lines:
                        lines.append(line)
                first = prefix_end(hints.held_in(_read_line(page[-1])))
            return lines

        for lines in await self._store.each(of_shard, range(SHARDS)):
            found |= dict.fromkeys(lines)
        return list(found)[:limit]

    async def _after(self, prefix: str, limit: int, after_id: str | None) -> list[str]:
        return await self._in_order(prefix, limit, "" if after_id is None else prefix_end(key(prefix, after_id)))

    async def _in_order(self, prefix: str, limit: int, first: str = "", end: str | None = None) -> list[str]:
        """The jobs of the first `limit` hints of a range that hold."""
        found = await self.first_valid(prefix, limit, first, end)
        return [row.values["jobId"] for row in found]

    async def first_valid(self, prefix: str, limit: int, first: str = "", end: str | None = None) -> list[Row]:
        """The first `limit` hints of a range that hold, sorted by key."""
        found: list[Row] = []
        start = first
        while len(found) < limit:
            wanted = limit - len(found) + EXTRA_HINTS

            async def read(shard: int, start: str = start, wanted: int = wanted) -> list[Row]:
                return await self._store.read_hints(prefix, start, end, limit=wanted, shards=[shard])

            pages = await self._store.each(read, range(SHARDS))
            cut = [page[-1].key for page in pages if len(page) >= wanted]
            # Beyond the end of the shortest page another shard may have earlier ones.
            last = min(cut) if cut else None
            page = sorted((row for rows_ in pages for row in rows_), key=lambda row: row.key)
            page = [row for row in page if last is None or row.key <= last]
            for place in range(0, len(page), wanted):
                found += await self.valid(page[place : place + wanted])
                if len(found) >= limit:
                    break
            if last is None:
                break
            start = last + " "  # No character of a key sorts before it.
        return found[:limit]

    async def valid(self, found: Sequence[Row]) -> list[Row]:
        """Of these hints, in their order, those that their job has. Those that it has outlived are deleted."""
        by_job = dict.fromkeys((row.values["jobId"], row.values["tenant_id"]) for row in found)
        refs = [JobRef(*one) for one in by_job]

        async def read(ref: JobRef) -> Row | None:
            return await self._store.read_own(ref, ["revision", "hints"])

        own = dict(zip((ref.job_id for ref in refs), await self._store.each(read, refs), strict=True))
        kept: list[Row] = []
        outlived: dict[int, list[str]] = {}
        for row in found:
            job = own[row.values["jobId"]]
            if job is None:
                continue  # It is being created, or never will be: repair knows.
            if row.key in rows.read_keys(job.values["hints"]):
                kept.append(row)
            elif hints.revision_of(row.key) <= job.values["revision"]:
                outlived.setdefault(shard_of(row.values["jobId"]), []).append(row.key)
        if outlived:
            await self._store.write_index({}, outlived)
        return kept


def _read_line(hint: Row) -> HeldLine:
    _, _, lane, service, *_ = hint.key.split(":")
    return HeldLine(hint.values["tenant_id"], int(lane), decoded(service))
