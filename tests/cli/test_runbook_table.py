"""The table of `lucius runbook list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lucius.cli.runbooks.render import runbook_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def line(name: str, tenant: str | None) -> dict[str, Any]:
    return {"name": name, "tenant": tenant, "version": 1, "is_active": True, "automation": True, "open_batches": 0}


def test_the_tenant_has_a_column_if_a_runbook_has_a_tenant() -> None:
    table = runbook_table([line("moves", None), line("acme.moves", "acme")], NOW)
    assert [column.name for column in table.columns][:3] == ["Name", "Tenant", "Version"]
    assert [row[1] for row in table.rows] == ["", "acme"]
    assert "Tenant" not in [column.name for column in runbook_table([line("moves", None)], NOW).columns]
