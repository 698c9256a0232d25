"""What several pages need to know of a visitor."""

from __future__ import annotations

from lucius.console.page import View
from lucius.domain.errors import CallerError


def require_all_tenants(view: View, what: str) -> None:
    """Raise FORBIDDEN, as the API does, for what belongs to no tenant."""
    if not view.visitor.sees_all:
        raise CallerError.of("FORBIDDEN", f"{what} need a key on all tenants")
