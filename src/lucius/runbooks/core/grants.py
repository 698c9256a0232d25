"""What the runbooks of each tenant may use, as granted in the tenants' files right now.

Asked whenever a runbook is published, its source is read and its jobs are sent, because a grant can be withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from lucius.domain.runbook_tenants import NO_GRANTS, RunbookGrants, tenant_of_runbook

ADVICE = "grant it in the tenant's file in the registry, under runbooks"

ByTenant = Mapping[str, RunbookGrants]


def nothing_granted() -> ByTenant:
    return {}


class Grants:
    def __init__(self, read: Callable[[], ByTenant] = nothing_granted) -> None:
        """`read` returns the same mapping until something in it changes."""
        self._read = read
        self._known: ByTenant | None = None
        self._owners: dict[str, str] = {}

    def connection_refusal(self, runbook: str, connection: str) -> str | None:
        """Why this runbook may not read this connection; None if it may. The operator's runbooks may read any."""
        tenant = tenant_of_runbook(runbook)
        if tenant is None or connection in self._of(tenant).connections:
            return None
        return f"the tenant {tenant} may not use the connection {connection}: {ADVICE}.connections"

    def worker_refusal(self, runbook: str, worker_id: str) -> str | None:
        """Why this runbook may not send jobs to this worker; None if it may. The operator's runbooks may send to all
        workers but tenants' own."""
        tenant, owner = tenant_of_runbook(runbook), self._owner(worker_id)
        if tenant is not None and (owner == tenant or (owner is None and worker_id in self._of(tenant).workers)):
            return None
        if tenant is None:
            return None if owner is None else f"the worker {worker_id} takes only jobs of the tenant that owns it"
        return f"the tenant {tenant} may not use the worker {worker_id}: {ADVICE}.workers"

    def own_workers(self, tenants: Collection[str]) -> frozenset[str]:
        """Workers whose jobs can only be those of these tenants."""
        return frozenset(worker for tenant in tenants for worker in self._of(tenant).own_workers)

    def _of(self, tenant: str) -> RunbookGrants:
        return self._read().get(tenant, NO_GRANTS)

    def _owner(self, worker_id: str) -> str | None:
        granted = self._read()
        if granted is not self._known:
            self._owners = {worker: tenant for tenant, one in granted.items() for worker in one.own_workers}
            self._known = granted
        return self._owners.get(worker_id)


class EverythingGranted(Grants):
    """For rehearsals, where nothing is read and nothing is sent."""

    def connection_refusal(self, runbook: str, connection: str) -> str | None:
        return None

    def worker_refusal(self, runbook: str, worker_id: str) -> str | None:
        return None
