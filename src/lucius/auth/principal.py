"""A principal: who calls, for which tenants, and in which roles."""

from __future__ import annotations

from msgspec import Struct

ROLES = frozenset({"submit", "read", "work", "operate", "admin"})


class Principal(Struct, frozen=True):
    name: str
    """For the audit trail; never a credential."""
    tenants: frozenset[str] | None
    """In normal form; None is all of them."""
    roles: frozenset[str]

    def may(self, role: str) -> bool:
        """Whether the role is held; `admin` holds them all."""
        return role in self.roles or "admin" in self.roles

    def sees(self, tenant_norm: str) -> bool:
        """Whether this tenant, in normal form, is one of the principal's."""
        return self.tenants is None or tenant_norm in self.tenants


EVERYTHING = Principal("api-key", None, ROLES)
"""Who holds the one key of `LUCIUS_API_KEY`."""
