"""What tenants' runbooks may use, from the registry."""

from __future__ import annotations

from lucius.domain.runbook_tenants import RunbookGrants
from lucius.ports.registry import Registry, RegistrySnapshot
from lucius.runbooks.core.grants import Grants


def grants_in(registry: Registry) -> Grants:
    """As the registry says at any time."""
    known: tuple[RegistrySnapshot, dict[str, RunbookGrants]] | None = None

    def read() -> dict[str, RunbookGrants]:
        nonlocal known
        snapshot = registry.snapshot()
        if known is None or known[0] is not snapshot:
            known = snapshot, {tenant.id: tenant.runbooks for tenant in snapshot.tenants.values()}
        return known[1]

    return Grants(read)
