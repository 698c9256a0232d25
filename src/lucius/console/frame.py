"""The frame of all pages: lets visitors in, renders pages and pieces, carries out acts, and shows errors as pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lucius.api.endpoint import correlation_id
from lucius.api.runbook_scope import check_path
from lucius.app_context import AppContext
from lucius.console.forms import read_form
from lucius.console.menu import menu_for
from lucius.console.page import NOTICE, PIECE, Act, Download, Page, Piece, Shown, View
from lucius.console.pieces import Pieces
from lucius.console.site import Site
from lucius.console.templating import with_csrf
from lucius.console.visitor import SignedOut, Visitor, check_csrf, find_visitor
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.ports.bus import BusUnavailable
from lucius.ports.database import DatabaseUnavailable
from lucius.ports.ledger import LedgerUnavailable

log = logging.getLogger("lucius.console")

Endpoint = Callable[[Request], Awaitable[Response]]

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


TITLES = {"ENVELOPE_INVALID": "Not understood"}
"""Of pages that show an error, by its code; otherwise the code in words."""


class Frame:
    def __init__(self, context: AppContext, site: Site, templates: Environment) -> None:
        self.context = context
        self.site = site
        self._templates = templates
        self.pieces = Pieces(context.changes)

    # --- Endpoints ---------------------------------------------------------------------------------------------------

    def page(self, page: Page) -> Endpoint:
        by_name = {piece.name: piece for piece in page.pieces}

        async def show(request: Request) -> Response:
            view = await self.view(request, page.role)
            wanted = request.query_params.getlist(PIECE)
            if not wanted:
                return await self._whole(view, page)
            if not all(name in by_name and _is_for(by_name[name], view.visitor) for name in wanted):
                raise CallerError.of("NOT_FOUND", "there is no such piece of this page")
            pieces = [by_name[name] for name in dict.fromkeys(wanted)]
            if len(pieces) == 1:
                return self.html(await self._piece(view, pieces[0], pieces[0].seconds_min), visitor=view.visitor)
            return self.html(await self._pieces(view, pieces), visitor=view.visitor)

        return self.guarded(show)

    def act(self, act: Act) -> Endpoint:
        async def run(request: Request) -> Response:
            view = await self.view(request, None)
            form = await read_form(request)
            check_csrf(request, view.visitor, form.text("csrf", 64))
            view.require(act.role)
            done = await act.run(view, form)
            if isinstance(done, str):
                return self.leading_to(done)
            if isinstance(done, Shown):
                return await self._whole(view, done.page, done.values, done.status)
            done.headers.update(HEADERS)
            return done

        return self.guarded(run)

    def download(self, download: Download) -> Endpoint:
        async def run(request: Request) -> Response:
            response: Response = await download.run(await self.view(request, download.role))
            response.headers.update(HEADERS)
            return response

        return self.guarded(run)

    def guarded(self, run: Endpoint) -> Endpoint:
        """Turns every error into a page."""

        async def guard(request: Request) -> Response:
            try:
                return await run(request)
            except SignedOut:
                return self._sign_in(request)
            except Exception as error:
                return await self.problem(request, self._known(request, error))

        return guard

    def _known(self, request: Request, error: Exception) -> LuciusError:
        """What to tell the visitor of an error. One that nobody expected is logged."""
        if isinstance(error, LuciusError):
            return error
        if isinstance(error, LedgerUnavailable | BusUnavailable | DatabaseUnavailable):
            return InfrastructureError.unavailable(str(error))
        known = correlation_id(request, self.context)
        log.error("unexpected error", exc_info=error, extra={"correlation_id": known})
        return LuciusError.of("INTERNAL", f"an unexpected error; it was logged with the correlation id {known}")

    # --- Rendering ---------------------------------------------------------------------------------------------------

    async def view(self, request: Request, role: str | None) -> View:
        """Raises `SignedOut`, FORBIDDEN without the role, or NOT_FOUND for another tenant's runbook or batch."""
        view = View(
            request=request, context=self.context, site=self.site, visitor=await find_visitor(request, self.context)
        )
        if role is not None:
            view.require(role)
        await check_path(self.context, view.visitor.principal, request.path_params)
        return view

    async def _whole(
        self, view: View, page: Page, loaded: Mapping[str, Any] | None = None, status: int = 200
    ) -> Response:
        shown = [piece for piece in page.pieces if _is_for(piece, view.visitor)]
        values = dict(await page.load(view) if loaded is None else loaded)
        html = {piece.name: await self._wrapped(view, piece) for piece in shown}
        follows = sorted({name for piece in shown for name in piece.follows(view)})
        notice = page.notices.get(view.request.query_params.get(NOTICE, ""))
        values |= {
            "title": values.get("title", page.title), "section": page.section, "visitor": view.visitor, "view": view,
            "piece": lambda name: html.get(name, Markup("")), "follows": follows, "notice": notice,
        }  # fmt: skip
        return self.html(self.render(page.template, values), status, view.visitor)

    async def _wrapped(self, view: View, piece: Piece) -> Markup:
        """A piece within the element that asks for it again."""
        values = {
            "piece": piece,
            "follows": piece.follows(view),
            "address": view.address(**{**view.query, PIECE: piece.name}),
            "html": Markup(await self._piece(view, piece)),  # noqa: S704 - rendered by a template
        }
        return Markup(self.render("piece.html", values))  # noqa: S704 - rendered by a template

    async def _pieces(self, view: View, pieces: list[Piece]) -> str:
        """Several pieces in one answer, from which htmx exchanges each. One that fails says so in its own place."""
        shown = []
        for piece in pieces:
            try:
                html = await self._piece(view, piece, piece.seconds_min)
            except Exception as error:
                html = self.render("problem_piece.html", {"error": self._known(view.request, error)})
            shown.append(f'<hx-partial hx-target="#piece-{piece.name}" hx-swap="innerMorph">{html}</hx-partial>')
        return "".join(shown)

    async def _piece(self, view: View, piece: Piece, seconds_min: float = 0.0) -> str:
        stamp = await piece.stamp(view) if piece.stamp is not None else None
        key = (piece.template, view.path, tuple(sorted(view.query.items())), view.visitor.scope, stamp)

        async def render() -> str:
            values = {"visitor_may": view.visitor.may, "sees_all": view.visitor.sees_all, "view": view}
            return self.render(piece.template, {**values, **await piece.load(view)})

        return await self.pieces.get(key, piece.follows(view), piece.seconds_max, render, seconds_min)

    def render(self, template: str, values: dict[str, Any]) -> str:
        known = {"visitor": None, "notice": None, "follows": (), "section": "", "menu_for": menu_for}
        return self._templates.get_template(template).render(known | values)

    def html(self, html: str, status: int = 200, visitor: Visitor | None = None) -> Response:
        return HTMLResponse(html if visitor is None else with_csrf(html, visitor.csrf), status, HEADERS)

    def leading_to(self, address: str) -> Response:
        return RedirectResponse(address, 303, HEADERS)

    async def problem(self, request: Request, error: LuciusError) -> Response:
        """An error as a page, or as a few words where only a piece was asked for."""
        try:
            visitor = await find_visitor(request, self.context)
        except (SignedOut, DatabaseUnavailable):
            visitor = None
        is_piece = "hx-request" in request.headers
        title = TITLES.get(error.code, error.code.replace("_", " ").capitalize())
        values = {"title": title, "error": error, "visitor": visitor}
        html = self.render("problem_piece.html" if is_piece else "problem.html", values)
        answer = self.html(html, error.status, visitor)
        if error.retry_after_seconds is not None:
            answer.headers["Retry-After"] = str(max(1, round(error.retry_after_seconds)))
        return answer

    def _sign_in(self, request: Request) -> Response:
        view_path = str(request.scope["path"]).removeprefix(str(request.scope.get("root_path", "")))
        if "hx-request" in request.headers or request.method != "GET":
            answer = self.html(self.render("signed_out.html", {"title": "Signed out"}), 401)
            answer.headers["HX-Redirect"] = f"{self.site.base}/sign-in"
            return answer
        query = request.url.query
        following = f"{view_path}?{query}" if query else view_path
        return self.leading_to(f"{self.site.base}/sign-in?{urlencode({'next': following})}")


def _is_for(piece: Piece, visitor: Visitor) -> bool:
    return visitor.sees_all or not piece.for_all_tenants
