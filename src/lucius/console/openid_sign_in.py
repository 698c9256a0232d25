"""Signing in with OpenID Connect: to the issuer, back with a code, and past a page of our own.

The session cookie is `SameSite=Strict`. A browser that is on its way back from the issuer does not send such a cookie,
not even through a redirect. So the answer to the way back is a page, which sets the cookie and leads on by itself: that
step begins at the console. What an attempt has to remember until then is in a cookie of its own, which is `Lax`.
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucius.auth.jwt import LEEWAY_SECONDS
from lucius.auth.openid import Attempt, OpenIdConnect, Person
from lucius.console.frame import Frame
from lucius.console.visitor import SessionPerson, keep_session
from lucius.domain.errors import CallerError
from lucius.domain.time import Instant
from lucius.usecases.console_sessions import NewToken

COOKIE = "lucius_console_sign_in"
ATTEMPT_SECONDS = 600
COOKIE_CHARS_MAX = 3_500
MILLIS = 1_000
BEGIN_PATH = "/sign-in/openid"
SIGNED_OUT_PATH = "/signed-out"
STALE = (
    "This sign-in was finished before, took longer than ten minutes, or was begun again in another tab. Sign in again."
)


class OpenIdSignIn:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._openid = frame.context.openid

    @property
    def issuer_name(self) -> str | None:
        """The issuer's host, for a button; None if there is no issuer."""
        return None if self._openid is None else urlsplit(self._openid.issuer).netloc

    async def begin(self, following: str) -> Response:
        """Leads to the issuer."""
        attempt = Attempt.new()
        answer = self._frame.leading_to(await self._configured().address(attempt))
        kept = ".".join((attempt.state, attempt.nonce, attempt.verifier, _encoded(following)))
        if len(kept) > COOKIE_CHARS_MAX:
            raise CallerError.of("ENVELOPE_INVALID", "the address to return to is too long")
        site = self._frame.site
        answer.set_cookie(
            COOKIE, kept, max_age=ATTEMPT_SECONDS, path=f"{site.base}{BEGIN_PATH}", secure=site.is_secure,
            httponly=True, samesite="lax",
        )  # fmt: skip
        return answer

    async def finish(self, request: Request) -> tuple[NewToken, str]:
        """The session of whom the issuer signed in, and the path that was asked for. Raises `LuciusError`."""
        openid = self._configured()
        pairs = request.query_params.multi_items()
        kept = _kept(request)
        if kept is None or len(dict(pairs)) != len(pairs):
            raise CallerError.of("UNAUTHENTICATED", STALE)
        attempt, following = kept
        person = await openid.sign_in(attempt, dict(pairs))
        return await self._new_session(openid, person), following

    def land(self, session: NewToken, address: str) -> Response:
        """The page that sets the session cookie and leads on."""
        answer = self._frame.html(self._frame.render("openid_landing.html", {"title": "Signed in", "address": address}))
        seconds = (session.expires_at - self._frame.context.clock.now()) / MILLIS
        keep_session(answer, session, self._frame.site, seconds)
        return answer

    def forget(self, answer: Response) -> None:
        """An attempt is used once, however it ends."""
        site = self._frame.site
        answer.delete_cookie(
            COOKIE, path=f"{site.base}{BEGIN_PATH}", secure=site.is_secure, httponly=True, samesite="lax"
        )

    async def signed_out(self) -> Response:
        """Signed out of the console; the issuer may still know the browser."""
        address = await self._configured().sign_out_address(f"{self._frame.site.url}/sign-in")
        values = {"title": "Signed out", "issuer": self.issuer_name, "address": address}
        return self._frame.html(self._frame.render("openid_signed_out.html", values))

    def _configured(self) -> OpenIdConnect:
        if self._openid is None:
            raise CallerError.of("NOT_FOUND", "this console has no OpenID Connect: LUCIUS_OIDC_ISSUER is not set")
        return self._openid

    async def _new_session(self, openid: OpenIdConnect, person: Person) -> NewToken:
        kept = SessionPerson(
            issuer=openid.issuer, client_id=openid.client_id, label=person.label, principal=person.principal
        )
        # The API would accept such a token until then.
        ends_by = Instant((person.expires_at + LEEWAY_SECONDS) * MILLIS)
        sessions = self._frame.context.console_sessions
        return await sessions.new_person_session(person.identity, msgspec.json.encode(kept).decode(), ends_by)


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _kept(request: Request) -> tuple[Attempt, str] | None:
    value = request.cookies.get(COOKIE, "")
    parts = value.split(".")
    if len(value) > COOKIE_CHARS_MAX or len(parts) != 4 or not all(parts):
        return None
    try:
        following = base64.urlsafe_b64decode(parts[3] + "=" * (-len(parts[3]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return Attempt(state=parts[0], nonce=parts[1], verifier=parts[2]), following
