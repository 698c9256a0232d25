"""A principal: a caller with its tenants and roles."""

from __future__ import annotations

from msgspec import Struct

ROLES = frozenset({"submit", "read", "work", "operate", "admin"})


class Principal(Struct, frozen=True):
    name: str
    """For the audit trail; never a credential. Prefixed with its kind, `key:`, `jwt:` or `oidc:` (signed in
    to the console), so that a token's subject cannot impersonate a key."""
    tenants: frozenset[str] | None
    """In normal form; None means all."""
    roles: frozenset[str]
    services: frozenset[str] | None = None
    """Services whose directives the principal may take; None means all."""
    worker_ids: frozenset[str] | None = None
    """Workers whose runbook jobs the principal may take; None means all."""

    def may(self, role: str) -> bool:
        """Whether the principal has the role; `admin` includes all."""
        return role in self.roles or "admin" in self.roles

    def sees(self, tenant_norm: str) -> bool:
        """Whether this tenant, in normal form, is one of the principal's."""
        return self.tenants is None or tenant_norm in self.tenants


FULL_ACCESS = Principal("key:api-key", None, ROLES)
"""The principal of the key in `LUCIUS_API_KEY`."""
