"""Who looks at a page: the session in the cookie, and the principal that its API key stands for now."""

from __future__ import annotations

import hashlib
import hmac

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from lucius.app_context import AppContext
from lucius.auth import Principal
from lucius.console.site import Site
from lucius.domain.errors import CallerError
from lucius.usecases.console_sessions import NewToken

COOKIE = "lucius_console"
SAME_SITES = (None, "same-origin", "none")

Scope = tuple[tuple[str, ...] | None, bool, bool]
"""What a piece of a page depends on besides its address: the tenants, and whether there are buttons."""


class Visitor(Struct, frozen=True, kw_only=True):
    principal: Principal
    token: str
    session_id: str
    """Not a secret: the beginning of the token's hash."""

    @property
    def csrf(self) -> str:
        return hashlib.sha256(f"csrf\n{self.token}".encode()).hexdigest()

    @property
    def scope(self) -> Scope:
        tenants = self.principal.tenants
        return None if tenants is None else tuple(sorted(tenants)), self.may("operate"), self.may("submit")

    @property
    def sees_all(self) -> bool:
        return self.principal.tenants is None

    def may(self, role: str) -> bool:
        return self.principal.may(role)


class SignedOut(Exception):
    """There is no session, or it has ended, or its API key is no longer known."""


async def find_visitor(request: Request, context: AppContext) -> Visitor:
    """Raises `SignedOut`."""
    token = request.cookies.get(COOKIE, "")
    session = await context.console_sessions.find(token)
    principal = None if session is None else context.authenticator.of_key_hash(session.key_hash)
    if session is None or principal is None:
        raise SignedOut
    return Visitor(principal=principal, token=token, session_id=session.token_hash[:16])


def check_same_site(request: Request) -> None:
    """Raise FORBIDDEN if the browser says that another site sends this."""
    if request.headers.get("sec-fetch-site") not in SAME_SITES:
        raise CallerError.of("FORBIDDEN", "another site asked for this; do it from the console itself")


def check_csrf(request: Request, visitor: Visitor, sent: str) -> None:
    check_same_site(request)
    if not hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), visitor.csrf.encode()):
        detail = "this form belongs to another session or has expired; load the page again, and repeat it"
        raise CallerError.of("FORBIDDEN", detail)


def keep_session(answer: Response, session: NewToken, site: Site, seconds: float) -> None:
    answer.set_cookie(
        COOKIE, session.token, max_age=int(seconds), path=site.base, secure=site.is_secure, httponly=True,
        samesite="strict",
    )  # fmt: skip


def drop_session(answer: Response, site: Site) -> None:
    answer.delete_cookie(COOKIE, path=site.base, secure=site.is_secure, httponly=True, samesite="strict")
