"""What is kept beside the ledger, where the ledger is: bulk operations, the audit, sign-ins, who asks for work."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import NamedTuple

from lucius.bootstrap.tables_ledger import is_on_tables
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql.audit import SqlAudit
from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.ledgers.sql.console_tokens import SqlConsoleTokens
from lucius.ledgers.sql.console_views import SqlConsoleViews
from lucius.ledgers.sql.lane_samples import SqlLaneSamples
from lucius.ledgers.sql.workers import SqlWorkers
from lucius.ports.audit import AuditSource
from lucius.ports.bulk_operations import BulkOperations
from lucius.ports.console_tokens import ConsoleTokens
from lucius.ports.console_views import ConsoleViews
from lucius.ports.lane_samples import LaneSamples
from lucius.ports.ledger import Ledger
from lucius.ports.workers import Workers
from lucius.settings import Settings
from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.volatile import VolatileDatabase


class OperatorStores(NamedTuple):
    workers: Workers
    bulk: BulkOperations
    console_tokens: ConsoleTokens
    console_views: ConsoleViews
    lane_samples: LaneSamples
    audit: list[AuditSource]
    database: Database | None
    """For runbooks; None if there is none."""


async def open_operator_stores(
    stack: AsyncExitStack, settings: Settings, database: Database | None, ledger: Ledger
) -> OperatorStores:
    if is_on_tables(settings):
        return tables_stores(ledger)
    if database is None:
        # A ledger in memory has no tables, but runbooks and bulk operations need tables: these are in memory too.
        database = await stack.enter_async_context(VolatileDatabase())
        await schema.upgrade(database)
    audit: list[AuditSource] = [SqlAudit(database)]
    if isinstance(ledger, MemoryLedger):
        audit.append(ledger)
    return OperatorStores(
        SqlWorkers(database),
        SqlBulkOperations(database),
        SqlConsoleTokens(database),
        SqlConsoleViews(database),
        SqlLaneSamples(database),
        audit,
        database,
    )


def tables_stores(ledger: Ledger) -> OperatorStores:
    from lucius.ledgers.tables import TablesLedger
    from lucius.ledgers.tables.bulk_operations import TablesBulkOperations
    from lucius.ledgers.tables.console_tokens import TablesConsoleTokens
    from lucius.ledgers.tables.console_views import TablesConsoleViews
    from lucius.ledgers.tables.lane_samples import TablesLaneSamples
    from lucius.ledgers.tables.workers import TablesWorkers

    assert isinstance(ledger, TablesLedger)
    table = ledger.store.operators
    return OperatorStores(
        TablesWorkers(table),
        TablesBulkOperations(table),
        TablesConsoleTokens(table),
        TablesConsoleViews(table),
        TablesLaneSamples(table),
        [ledger.acts],
        None,
    )
