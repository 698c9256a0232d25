"""What people did, from every place that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from lucius.domain.errors import InfrastructureError
from lucius.ports.audit import AuditEntry, AuditFilter, AuditSource
from lucius.ports.ledger import LedgerUnavailable


class Audit:
    def __init__(self, sources: Sequence[AuditSource]) -> None:
        """A ledger in the database of everything else is not a source of its own."""
        self._sources = sources

    async def newest(
        self, filter_: AuditFilter, limit: int, before_id: str | None
    ) -> tuple[list[AuditEntry], str | None]:
        """A page, newest first, and where the next page begins."""
        try:
            pages = [await source.audit(filter_, limit + 1, before_id) for source in self._sources]
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        found = list(islice(merge(*pages, key=lambda entry: entry.entry_id, reverse=True), limit + 1))
        page = found[:limit]
        return page, page[-1].entry_id if len(found) > limit else None
