"""What people did, in SQL. Entries are written in the transaction of the act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from lucius.domain.bulk_operation import BulkOperation
from lucius.ledgers.sql import statements
from lucius.ports.audit import (
    AuditEntry,
    AuditFilter,
    AuditKind,
    creation_of,
    dismissal_of,
    entry_of,
    first_entry_id_at,
    is_act,
    new_entry_id,
    steering_events,
    steering_of,
)
from lucius.ports.ledger import Change, Closing, LedgerUnavailable
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Run, Script


class SqlAudit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def audit(self, filter_: AuditFilter, limit: int, before_id: str | None) -> Sequence[AuditEntry]:
        def script() -> Script[list[AuditEntry]]:
            ids: list[str] = []
            for tenant_id in (None,) if filter_.tenants is None else filter_.tenants:
                ids += [row[0] for row in (yield page_of_ids(filter_, tenant_id, limit, before_id))]
            newest = sorted(ids, reverse=True)[:limit]
            return [_read(row) for row in (yield Fetch(statements.READ_AUDIT, [newest]))]

        try:
            return await self._database.scan(script)
        except DatabaseUnavailable as error:
            raise LedgerUnavailable(str(error)) from error


def page_of_ids(filter_: AuditFilter, tenant_id: str | None, limit: int, before_id: str | None) -> Fetch:
    conditions: list[str] = []
    args: list[Any] = [limit]

    def add(condition: str, value: Any) -> None:
        if value is not None:
            args.append(value)
            conditions.append(condition.format(f"${len(args)}"))

    add("tenant_id = {} AND tenant_id IS NOT NULL", tenant_id)
    add("actor = {}", filter_.actor)
    add("action = {}", filter_.action)
    add("kind = {}", None if filter_.kind is None else filter_.kind.value)
    add("target = {}", filter_.target)
    add("entry_id >= {}", None if filter_.at_from is None else first_entry_id_at(filter_.at_from))
    ends = [] if before_id is None else [before_id]
    if filter_.at_to is not None:
        ends.append(first_entry_id_at(filter_.at_to))
    add("entry_id < {}", min(ends) if ends else None)
    return Fetch(statements.list_audit_ids(conditions), args)


def _read(row: Sequence[Any]) -> AuditEntry:
    fields = dict(zip(AuditEntry.__struct_fields__, row, strict=True))
    return AuditEntry(**{**fields, "kind": AuditKind(fields["kind"])})


def note_acts(changes: Sequence[Change]) -> Script[None]:
    """Those among the events of jobs."""
    acts = [(change.after, event) for change in changes for event in change.events if is_act(event)]
    if acts:
        yield Run(
            statements.INSERT_AUDIT, [astuple(entry_of(job, event, new_entry_id(event.at))) for job, event in acts]
        )


def note_act(act: AuditEntry) -> Script[None]:
    yield Run(statements.INSERT_AUDIT, [astuple(act)])


def note_dismissal(closing: Closing, tenant_id: str | None) -> Run:
    return Run(statements.INSERT_AUDIT, [astuple(dismissal_of(closing, tenant_id, new_entry_id(closing.at)))])


def note_operation(operation: BulkOperation) -> Run:
    """That somebody began it."""
    return Run(statements.INSERT_AUDIT, [astuple(creation_of(operation, new_entry_id(operation.created_at)))])


def note_steering(before: BulkOperation, after: BulkOperation) -> Script[None]:
    for event in steering_events(before, after):
        yield Run(statements.INSERT_AUDIT, [astuple(steering_of(after, event, new_entry_id(event.at)))])
