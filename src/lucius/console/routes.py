"""The table of pages, and the routes made from it."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from lucius.app_context import AppContext
from lucius.console import job_views
from lucius.console.frame import HEADERS, Frame
from lucius.console.page import Act, Download, Page
from lucius.console.pages import (
    audit,
    batch,
    batch_acts,
    batch_members,
    batches,
    dead_letters,
    job,
    jobs,
    lanes,
    new_payload,
    operations,
    overview,
    protocols,
    runbook_acts,
    runbooks,
    submit,
    tenants,
    workers,
)
from lucius.console.sign_in import SignIn
from lucius.console.site import site_of
from lucius.console.stream import Streams
from lucius.console.templating import STATIC, open_templates
from lucius.domain.errors import CallerError

PAGES: tuple[Page, ...] = (
    overview.PAGE, jobs.PAGE, job.PAGE, new_payload.PAGE, dead_letters.PAGE, *operations.PAGES, batches.PAGE,
    batch.PAGE,
    batch_members.PAGE, batch_members.MEMBER_PAGE, lanes.PAGE, workers.PAGE, tenants.PAGE, *protocols.PAGES,
    submit.PAGE, audit.PAGE, *runbooks.PAGES, runbook_acts.PUBLISH,
)  # fmt: skip
ACTS: tuple[Act, ...] = (
    *job_views.ACTS, *job.ACTS, *new_payload.ACTS, *operations.ACTS, *batch_acts.ACTS, *submit.ACTS, *runbook_acts.ACTS,
)  # fmt: skip
DOWNLOADS: tuple[Download, ...] = (*jobs.DOWNLOADS, *batch.DOWNLOADS)

FILES = {
    "console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml",
    "batches.css": "text/css", "grid.js": "text/javascript",
    "vendor/htmx.min.js": "text/javascript", "vendor/hx-sse.min.js": "text/javascript",
    "vendor/htmx-LICENSE.txt": "text/plain",
}  # fmt: skip
"""The static files, with their types."""
STATIC_SECONDS = 31_536_000


def console_routes(context: AppContext) -> list[BaseRoute]:
    """The console under `/console`, and `/` that leads there; nothing if it is off."""
    if not context.settings.has_console:
        return []
    site = site_of(context.settings)
    frame = Frame(context, site, open_templates(site))

    async def lead(request: Request) -> Response:
        return RedirectResponse(f"{site.base}/", 307)

    return [
        Route("/", lead, methods=["GET"]),
        Route("/console", lead, methods=["GET"]),
        Mount("/console", app=_console(frame), name="console"),
    ]


def _console(frame: Frame) -> Starlette:
    streams = Streams()

    async def stream(request: Request) -> Response:
        return await streams.open(await frame.view(request, "read"))

    async def no_page(request: Request, error: Exception) -> Response:
        is_method = isinstance(error, HTTPException) and error.status_code == 405
        code = "METHOD_NOT_ALLOWED" if is_method else "NOT_FOUND"
        return await frame.problem(request, CallerError.of(code, "the console has no such page"))

    routes = [
        *(Route(path, run, methods=[method]) for method, path, run in SignIn(frame).endpoints()),
        *(Route(download.path, frame.download(download), methods=["GET"]) for download in DOWNLOADS),
        *(Route(page.path, frame.page(page), methods=["GET"]) for page in PAGES),
        *(Route(act.path, frame.act(act), methods=["POST"]) for act in ACTS),
        Route("/stream", frame.guarded(stream), methods=["GET"]),
        Route("/static/{name:path}", _static, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_page})
    app.router.redirect_slashes = False
    return app


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404)
    kept = {**HEADERS, "Cache-Control": f"public, max-age={STATIC_SECONDS}, immutable"}
    return FileResponse(STATIC / name, headers=kept, media_type=FILES[name])
