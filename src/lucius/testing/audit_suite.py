"""Conformance suite for the list of what people did. Provide a fixture `audit`: an open and empty store with `note`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lucius.ports.audit import AuditEntry, AuditFilter, AuditKind, new_entry_id


class WritableAudit(Protocol):
    async def note(self, entries: Sequence[AuditEntry]) -> None: ...

    async def audit(self, filter_: AuditFilter, limit: int, before_id: str | None) -> Sequence[AuditEntry]: ...


def entry(at: int, **fields: Any) -> AuditEntry:
    known: dict[str, Any] = {
        "entry_id": new_entry_id(at), "at": at, "actor": "key:ops", "action": "cancel", "kind": AuditKind.JOB,
        "target": f"job-{at}", "tenant_id": "acme", "reason": "why", "detail": "{}",
    }  # fmt: skip
    return AuditEntry(**known | fields)


class AuditSuite:
    async def test_entries_are_read_as_they_were_written_newest_first(self, audit: WritableAudit) -> None:
        odd = entry(3, actor="a/b\\c#d?é 😀", target="x" * 600, tenant_id="ten/ant", reason=None, detail='{"a":"#"}')
        entries = [entry(1), entry(2, tenant_id=None, kind=AuditKind.OPERATION), odd, entry(1 << 41)]
        await audit.note([])
        await audit.note(entries)
        assert list(await audit.audit(AuditFilter(), 10, None)) == entries[::-1]

    async def test_pages_leave_nothing_out(self, audit: WritableAudit) -> None:
        entries = [entry(at) for at in (5, 5, 5, 6, 7, 255, 256, 4_096)]
        await audit.note(entries)
        found: list[AuditEntry] = []
        while page := await audit.audit(AuditFilter(), 3, found[-1].entry_id if found else None):
            found += page
        assert found == entries[::-1]

    async def test_each_filter_and_several_at_once(self, audit: WritableAudit) -> None:
        first = entry(10)
        second = entry(20, tenant_id="globex", actor="key:other", action="pause", target=first.target)
        third = entry(30, tenant_id=None, kind=AuditKind.RUNBOOK, action="retire", target="move")
        await audit.note([first, second, third])

        async def found(**filter_: Any) -> list[AuditEntry]:
            return list(await audit.audit(AuditFilter(**filter_), 10, None))

        assert await found(tenants=("acme",)) == [first]
        assert await found(tenants=("acme", "globex")) == [second, first]
        assert await found(tenants=()) == []
        assert await found(actor="key:ops") == [third, first]
        assert await found(action="pause") == [second]
        assert await found(kind=AuditKind.JOB) == [second, first]
        assert await found(target=first.target) == [second, first]
        assert await found(target=first.target, tenants=("acme",)) == [first]
        assert await found(actor="key:ops", kind=AuditKind.JOB) == [first]
        assert await found(action="cancel", actor="key:other") == []
        assert await found(target="nothing") == []

    async def test_times_are_from_inclusive_to_exclusive(self, audit: WritableAudit) -> None:
        entries = [entry(at) for at in (10, 15, 16, 20)]
        await audit.note(entries)
        between = AuditFilter(at_from=15, at_to=20)
        assert list(await audit.audit(between, 10, None)) == [entries[2], entries[1]]
        assert list(await audit.audit(between, 1, None)) == [entries[2]]
        assert list(await audit.audit(between, 10, entries[2].entry_id)) == [entries[1]]
        assert list(await audit.audit(AuditFilter(at_to=15, tenants=("acme",)), 10, None)) == [entries[0]]
        assert list(await audit.audit(AuditFilter(at_from=21), 10, None)) == []
