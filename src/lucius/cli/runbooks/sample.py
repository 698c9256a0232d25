"""Runs the mailbox migration sample: against a running server, or against a temporary one."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from lucius.cli.connection import open_session
from lucius.cli.failures import CommandFailed, Unreachable
from lucius.cli.output.printing import show_sentence
from lucius.cli.runbooks.progress import ending_sentence
from lucius.cli.runbooks.sample_story import Story, faults_of
from lucius.cli.serve.server import server_packages
from lucius.client.calls import runbooks as runbook_calls

WORKERS = 8
DRAIN_SECONDS = 5.0


def run_against(url: str, api_key: str) -> bool:
    """Run against a running server; returns whether everything went as expected."""
    try:
        with open_session(url, api_key) as client:
            client.run(runbook_calls.list_runbooks())
    except Unreachable as error:
        raise Unreachable(
            f"no LUCIUS server answers at {url}: start one with `make run` or `lucius up`, or pass --up"
        ) from error
    return asyncio.run(_run(url, api_key))


def run_alone() -> bool:
    """Run with a server in a temporary folder, which stops with the sample."""
    with server_packages():
        import uvloop
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_alone())


async def _run_alone() -> bool:
    with tempfile.TemporaryDirectory(prefix="lucius-migration-") as folder:
        async with _server(Path(folder)) as (url, api_key, stopped):
            running = asyncio.create_task(_run(url, api_key))
            awaited: list[asyncio.Future[Any]] = [running, stopped]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                running.cancel()
                await asyncio.wait({running})
                raise click.Abort
            return running.result()


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[tuple[str, str, asyncio.Future[None]]]:
    """A temporary server: address, key, and a future that completes when the server is asked to stop."""
    with server_packages():
        from msgspec.structs import replace

        from lucius.api.serving import listen, served
        from lucius.bootstrap import open_app
        from lucius.console import console_routes
        from lucius.local_secrets import with_secrets
        from lucius.settings import Settings
        from lucius.telemetry.logs import configure_logs

    # Ignores the environment, which may be that of another server.
    settings = with_secrets(Settings(data=str(folder), port=0, log_level="WARNING", log_format="text"))
    configure_logs(settings)
    listener = listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    async with open_app(settings) as context, served(context, listener, console_routes(context)) as server:
        click.echo(f"A temporary server is up at {context.settings.public_url}, in {folder}.")
        stopped = asyncio.ensure_future(server.until_stopped())
        try:
            yield context.settings.public_url, context.settings.api_key, stopped
        finally:
            stopped.cancel()
            context.stopping.set()


async def _run(url: str, api_key: str) -> bool:
    """Runs the story in a thread, and its worker in this event loop."""
    stop = threading.Event()
    with open_session(url, api_key) as client:
        story = Story(client, stop)
        try:
            await asyncio.to_thread(story.publish)
            async with _worker(url, api_key):
                running = asyncio.ensure_future(asyncio.to_thread(_run_story, story))
                try:
                    return await asyncio.shield(running)
                finally:
                    stop.set()
                    await asyncio.wait({running})  # While the server is still up.
                    running.exception()  # Marked as retrieved: asyncio must not log the error of a stopped story.
        except CommandFailed as error:
            click.echo(f"\nThe migration did not finish: {error.message}", err=True)
            return False


def _run_story(story: Story) -> bool:
    from lucius.cli.runbooks.batch import show_grid

    batch = story.run()
    members = story.members()
    click.echo()
    show_grid(batch, members)
    faults = faults_of(batch, members)
    for fault in faults:
        click.echo(f"Not as expected: {fault}", err=True)
    if not faults:
        click.echo("\nAs expected: 7 mailboxes were moved, 1 failed and was rolled back, 1 was removed.")
        show_sentence(ending_sentence(batch))
    return not faults


@asynccontextmanager
async def _worker(url: str, api_key: str) -> AsyncIterator[None]:
    """Runs the sample's functions, on a temporary tenant."""
    from lucius.functions import WorkerSettings

    with tempfile.TemporaryDirectory(prefix="lucius-tenant-") as folder:
        functions = _functions(folder)
        # One of them fails by design: the story reports it, so the worker need not log it.
        logging.getLogger("lucius.functions").setLevel(logging.ERROR)
        stop = asyncio.Event()
        settings = WorkerSettings(url=url, api_key=api_key, concurrency=WORKERS, drain_seconds=DRAIN_SECONDS)
        working = asyncio.create_task(functions.worker.serve(stop, settings))
        click.echo(f"Worker {functions.worker.worker_id} runs here, with {len(functions.worker.functions)} functions.")
        try:
            yield
        finally:
            stop.set()
            await working


def _functions(folder: str) -> ModuleType:
    from lucius.samples.mailbox import functions

    functions.tenant = functions.Tenant(folder)
    return functions
