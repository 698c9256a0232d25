"""Signing in, by a link, by an API key or with OpenID Connect, and signing out."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from lucius.auth.keys import KEY_CHARS_MAX
from lucius.console.forms import read_form
from lucius.console.frame import Endpoint, Frame
from lucius.console.openid_sign_in import BEGIN_PATH, SIGNED_OUT_PATH, OpenIdSignIn
from lucius.console.visitor import check_csrf, check_same_site, drop_session, keep_session
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.settings import OPENID_RETURN_PATH
from lucius.usecases.console_sessions import TOKEN_CHARS_MAX, NewToken

NEXT_CHARS_MAX = 2_000
SECONDS_OF_HOUR = 3_600


class SignIn:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._sessions = frame.context.console_sessions
        self._openid = OpenIdSignIn(frame)

    async def form(self, request: Request) -> Response:
        return self._form(request.query_params.get("next", ""), None, 200)

    async def by_key(self, request: Request) -> Response:
        check_same_site(request)
        form = await read_form(request)
        key, following = form.text("key", KEY_CHARS_MAX), form.text("next", NEXT_CHARS_MAX)
        principal = self._frame.context.authenticator.known(f"Bearer {key}") if key else None
        if principal is None:
            return self._form(following, "This API key is not known here.", 401)
        session = await self._sessions.new_session(sha256(key.encode()).hexdigest())
        return self._signed_in(session, following)

    async def show_link(self, request: Request) -> Response:
        """Does not use the link up: programs that preview addresses open it too."""
        return self._frame.html(self._frame.render("sign_in_link.html", {"title": "Sign in", "token": _token(request)}))

    async def by_link(self, request: Request) -> Response:
        check_same_site(request)
        session = await self._sessions.use_link(_token(request))
        if session is None:
            detail = "This link was used, or is older than a minute: make another with 'lucius console link'."
            return self._form("", detail, 401)
        return self._signed_in(session, "")

    async def begin_openid(self, request: Request) -> Response:
        try:
            return await self._openid.begin(_local(request.query_params.get("next", "")))
        except InfrastructureError as error:
            return self._form(request.query_params.get("next", ""), _sentence(error), error.status)

    async def return_openid(self, request: Request) -> Response:
        """The way back from the issuer: another site leads here, so nothing is done without the attempt's cookie."""
        try:
            session, following = await self._openid.finish(request)
            answer = self._openid.land(session, f"{self._frame.site.base}{_local(following)}")
        except (CallerError, InfrastructureError) as error:
            answer = self._form("", _sentence(error), error.status)
        self._openid.forget(answer)
        return answer

    async def signed_out(self, request: Request) -> Response:
        return await self._openid.signed_out()

    async def sign_out(self, request: Request) -> Response:
        view = await self._frame.view(request, None)
        form = await read_form(request)
        check_csrf(request, view.visitor, form.text("csrf", 64))
        await self._sessions.end(view.visitor.token)
        following = SIGNED_OUT_PATH if view.visitor.is_person else "/sign-in"
        answer = self._frame.leading_to(f"{self._frame.site.base}{following}")
        drop_session(answer, self._frame.site)
        return answer

    def endpoints(self) -> list[tuple[str, str, Endpoint]]:
        """Method, path, endpoint."""
        guarded = self._frame.guarded
        return [
            ("GET", "/sign-in", guarded(self.form)),
            ("POST", "/sign-in", guarded(self.by_key)),
            ("GET", BEGIN_PATH, guarded(self.begin_openid)),
            ("GET", OPENID_RETURN_PATH, guarded(self.return_openid)),
            ("GET", SIGNED_OUT_PATH, guarded(self.signed_out)),
            ("GET", "/sign-in/{token}", guarded(self.show_link)),
            ("POST", "/sign-in/{token}", guarded(self.by_link)),
            ("POST", "/sign-out", guarded(self.sign_out)),
        ]

    def _form(self, following: str, problem: str | None, status: int) -> Response:
        begin = f"{self._frame.site.base}{BEGIN_PATH}?{urlencode({'next': _local(following)})}"
        values = {
            "title": "Sign in", "next": _local(following), "problem": problem, "issuer": self._openid.issuer_name,
            "begin": begin,
        }  # fmt: skip
        return self._frame.html(self._frame.render("sign_in.html", values), status)

    def _signed_in(self, session: NewToken, following: str) -> Response:
        site = self._frame.site
        answer = self._frame.leading_to(f"{site.base}{_local(following)}")
        hours = self._frame.context.settings.console_session_hours
        keep_session(answer, session, site, hours * SECONDS_OF_HOUR)
        return answer


def _token(request: Request) -> str:
    token: str = request.path_params["token"]
    if len(token) > TOKEN_CHARS_MAX:
        raise CallerError.of("NOT_FOUND", "there is no such link")
    return token


def _sentence(error: LuciusError) -> str:
    text = error.detail
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _local(path: str) -> str:
    """A path below the console; anything else leads to its first page."""
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_local and len(path) <= NEXT_CHARS_MAX and not path.startswith("/sign") else "/"
