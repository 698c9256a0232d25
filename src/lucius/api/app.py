"""The application: Starlette routes, made from the table of operations, from which the OpenAPI document is made too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from lucius.api.endpoint import PiecewiseJsonResponse, correlation_id, endpoint
from lucius.api.openapi import document
from lucius.api.operations import OPERATIONS
from lucius.api.problems import NO_ROUTE, defect, problem
from lucius.app_context import AppContext
from lucius.domain.errors import CallerError

Endpoint = Callable[[Request], Awaitable[Response]]


class Front:
    """Dispatches calls with a fixed path by one table lookup, and leaves the rest to the framework.

    Commands and callbacks are most of the traffic, and the framework's layers cost as much as the command itself. So do
    they for a piece of the console that is rendered already.
    """

    def __init__(self, app: Starlette, direct: dict[tuple[str, str], tuple[Endpoint, str]]) -> None:
        """`direct`: endpoints by method and path, each with the prefix that it is mounted at."""
        self.app = app
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = self._direct.get((scope["method"], scope["path"]))
            if found is not None:
                run, prefix = found
                if prefix:
                    scope["root_path"] = scope.get("root_path", "") + prefix
                response = await run(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


def create_front(context: AppContext, pages: Sequence[BaseRoute] = ()) -> Front:
    """The application behind its front, as a server serves it; `pages` are those of the console."""
    app = create_app(context)
    app.router.routes.extend(pages)
    mounted = [(mount.routes, mount.path) for mount in pages if isinstance(mount, Mount)]
    direct = {
        (method, prefix + route.path): (route.endpoint, prefix)
        for routes, prefix in [(app.router.routes, ""), *mounted]
        for route in routes
        if isinstance(route, Route) and "{" not in route.path
        for method in route.methods or ()
    }
    return Front(app, direct)


def create_app(context: AppContext) -> Starlette:
    app = Starlette()
    for operation in OPERATIONS:
        run = endpoint(context, operation.handler, operation.role, operation.on_all_tenants)
        app.router.routes.append(Route(operation.path, run, methods=[operation.method], name=operation.name))

    @cache
    def described() -> Response:
        """Made for the first who asks: most processes are never asked, and it takes longer than the rest of a start."""
        return PiecewiseJsonResponse(msgspec.json.encode(document(context.settings)))

    async def openapi(request: Request) -> Response:
        return described()

    async def no_route(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        known = NO_ROUTE.get(status) or CallerError.of("ENVELOPE_INVALID", "the request cannot be read")
        answer = problem(known, correlation_id(request, context))
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update(error.headers)
        return answer

    async def unexpected(request: Request, error: Exception) -> Response:
        return defect(error, correlation_id(request, context))

    app.router.routes.append(Route("/openapi.json", openapi, methods=["GET"]))
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(Exception, unexpected)
    return app
