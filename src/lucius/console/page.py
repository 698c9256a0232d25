"""How a page is declared: a frame, pieces that ask for themselves again, and acts that forms send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.endpoint import Call
from lucius.api.runbook_scope import scope_of
from lucius.app_context import AppContext
from lucius.auth import Principal
from lucius.console.forms import Form
from lucius.console.site import Site
from lucius.console.visitor import Visitor
from lucius.domain.errors import CallerError
from lucius.runbooks.service.scope import Scope

PIECE = "piece"
NOTICE = "notice"
OWN_PARAMETERS = (PIECE, NOTICE)
"""Query parameters that the frame reads; the others are the page's."""


class View(Struct, frozen=True, kw_only=True):
    """One request of one visitor."""

    request: Request
    context: AppContext
    site: Site
    visitor: Visitor

    @property
    def path(self) -> str:
        """Below the console: `/jobs`."""
        return str(self.request.scope["path"]).removeprefix(str(self.request.scope.get("root_path", ""))) or "/"

    @property
    def query(self) -> dict[str, str]:
        """The page's own parameters."""
        given = self.request.query_params.multi_items()
        return {name: value for name, value in given if name not in OWN_PARAMETERS and value != ""}

    def address(self, path: str | None = None, **query: str | None) -> str:
        """An address of the console: this page with these parameters, or another one."""
        named = {name: value for name, value in query.items() if value is not None}
        text = urlencode(named)
        return f"{self.site.base}{self.path if path is None else path}" + (f"?{text}" if text else "")

    @property
    def call(self) -> Call:
        """For what the API's handlers share. Its request has only the page's own parameters."""

        async def admit(request: Request) -> Principal:
            return self.visitor.principal

        request = Request({**self.request.scope, "query_string": urlencode(self.query).encode()}, self.request.receive)
        return Call(request, self.context, self.visitor.principal, admit)

    @property
    def runbook_scope(self) -> Scope:
        """The runbooks that the visitor sees."""
        return scope_of(self.visitor.principal)

    def require(self, role: str) -> None:
        if not self.visitor.may(role):
            raise CallerError.of("FORBIDDEN", f"this needs the role {role}")


Load = Callable[[View], Awaitable[Mapping[str, Any]]]
Names = Callable[[View], tuple[str, ...]]
Stamp = Callable[[View], Awaitable[Hashable]]


class Piece(Struct, frozen=True, kw_only=True):
    """A part of a page. Its template gets what `load` returns, and is rendered once per change and scope."""

    name: str
    template: str
    load: Load
    follows: Names
    """The names of `usecases.changes` that make it ask for itself again."""
    seconds_max: float = 5.0
    """When it is rendered again although nothing is known to have changed."""
    seconds_min: float = 0.4
    """How far apart renderings for open pages are at least: those that ask earlier wait for the next one. What changes
    all the time is rendered twice a second, however many look."""
    stamp: Stamp | None = None
    """A version of what it shows, where that can be had cheaply: another stamp is another rendering."""
    holds_still: bool = False
    """Whether it is not exchanged while the pointer or the focus is in it: nothing jumps under the cursor."""
    for_all_tenants: bool = False
    """Only shown to visitors who see all tenants."""
    every_seconds: float | None = None
    """How often the browser asks for it, besides after changes."""


async def _nothing(view: View) -> Mapping[str, Any]:
    return {}


class Page(Struct, frozen=True, kw_only=True):
    path: str
    """Below the console, with a slash at its beginning."""
    title: str
    section: str
    """The entry of the menu that it belongs to."""
    template: str
    pieces: tuple[Piece, ...] = ()
    load: Load = _nothing
    """What its frame needs: filters, forms."""
    role: str = "read"
    notices: Mapping[str, str] = {}
    """Sentences that an act may show after it, by the value of `?notice=`."""


class Shown(Struct, frozen=True):
    """A page as the answer to a form: what was sent is shown again, with what came of it."""

    page: Page
    values: Mapping[str, Any]
    status: int = 200


class Act(Struct, frozen=True, kw_only=True):
    """What a form sends. `run` returns the path and query to show next, as `View.address` makes it, a
    page, or a response."""

    path: str
    run: Callable[[View, Form], Awaitable[str | Shown | Response]]
    role: str = "operate"


class Download(Struct, frozen=True, kw_only=True):
    """A file of a page: `run` returns a response."""

    path: str
    run: Callable[[View], Awaitable[Any]]
    role: str = "read"
