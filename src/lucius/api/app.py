"""The application: FastAPI as the shell, the table of operations inside.

The routes are plain Starlette ones, because the framework's model machinery costs more than all the rest of a request;
the OpenAPI document is drawn from the same table that the routes come from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lucius import __version__
from lucius.api.endpoint import correlation_id, endpoint
from lucius.api.openapi import document
from lucius.api.operations import OPERATIONS
from lucius.api.problems import NO_ROUTE, defect, problem
from lucius.desk import Desk
from lucius.domain.errors import CallerError


class Front:
    """Answers the calls whose address is fixed by one look into a table, and leaves the rest to the framework.

    Commands and callbacks are most of all traffic, and the way through the framework's layers costs as much as the
    command itself.
    """

    def __init__(self, app: FastAPI, direct: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]]) -> None:
        self.app = app
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            run = self._direct.get((scope["method"], scope["path"]))
            if run is not None:
                response = await run(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


def create_front(desk: Desk) -> Front:
    """The application behind its front: what a server serves."""
    app = create_app(desk)
    direct = {
        (operation.method, operation.path): endpoint(desk, operation.handler, operation.role, operation.on_all_tenants)
        for operation in OPERATIONS
        if "{" not in operation.path
    }
    return Front(app, direct)


def create_app(desk: Desk) -> FastAPI:
    described = document(desk.settings)
    app = FastAPI(title="LUCIUS", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    for operation in OPERATIONS:
        run = endpoint(desk, operation.handler, operation.role, operation.on_all_tenants)
        app.router.routes.append(Route(operation.path, run, methods=[operation.method], name=operation.name))

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def no_route(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        known = NO_ROUTE.get(status) or CallerError.of("ENVELOPE_INVALID", "the request cannot be read")
        answer = problem(known, correlation_id(request, desk))
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update(error.headers)
        return answer

    async def unexpected(request: Request, error: Exception) -> Response:
        return defect(error, correlation_id(request, desk))

    app.router.routes.append(Route("/openapi.json", openapi, methods=["GET"]))
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(Exception, unexpected)
    return app
