"""Who looks at a page: the session in the cookie, and the principal that its API key stands for now, or whom an issuer
of OpenID Connect signed in."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from lucius.app_context import AppContext
from lucius.auth import ROLES, Principal
from lucius.console.site import Site
from lucius.domain.errors import CallerError
from lucius.ports.console_tokens import ConsoleToken
from lucius.usecases.console_sessions import NewToken

COOKIE = "lucius_console"
SAME_SITES = (None, "same-origin", "none")

Scope = tuple[frozenset[str] | None, frozenset[str]]
"""What a piece of a page depends on besides its address: the tenants, and every role, for each may be asked for."""


class Visitor(Struct, frozen=True, kw_only=True):
    principal: Principal
    token: str
    session_id: str
    """Not a secret: the beginning of the token's hash."""
    owner_hash: str
    """Names the person, or the API key, from one session to the next."""
    label: str
    """How the visitor is called on the pages."""
    is_person: bool
    """Whether an issuer of OpenID Connect signed the visitor in."""

    @property
    def csrf(self) -> str:
        return hashlib.sha256(f"csrf\n{self.token}".encode()).hexdigest()

    @property
    def scope(self) -> Scope:
        return self.principal.tenants, frozenset(role for role in ROLES if self.may(role))

    @property
    def sees_all(self) -> bool:
        return self.principal.tenants is None

    def may(self, role: str) -> bool:
        return self.principal.may(role)


class SignedOut(Exception):
    """There is no session, or it has ended, or its API key or its issuer is no longer known."""


class SessionPerson(Struct, frozen=True, kw_only=True):
    """What a session keeps of somebody whom an issuer signed in."""

    issuer: str
    client_id: str
    label: str
    principal: Principal


async def find_visitor(request: Request, context: AppContext) -> Visitor:
    """Raises `SignedOut`."""
    token = request.cookies.get(COOKIE, "")
    session = await context.console_sessions.find(token)
    if session is None:
        raise SignedOut
    principal, label = _holder(session, context)
    return Visitor(
        principal=principal, token=token, session_id=session.token_hash[:16], owner_hash=session.key_hash,
        label=label, is_person=session.person is not None,
    )  # fmt: skip


def _holder(session: ConsoleToken, context: AppContext) -> tuple[Principal, str]:
    """The principal of a session, and how it is called. Raises `SignedOut`."""
    if session.person is None:
        principal = context.authenticator.of_key_hash(session.key_hash)
        if principal is None:
            raise SignedOut
        return principal, principal.name
    person, settings = msgspec.json.decode(session.person, type=SessionPerson), context.settings
    if (person.issuer, person.client_id) != (settings.oidc_issuer, settings.oidc_client_id):
        raise SignedOut
    return person.principal, person.label


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
