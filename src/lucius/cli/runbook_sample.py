"""Where the story of the mailbox migration is played: at a server that runs, or at one of its own."""

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

from lucius.cli.failures import CommandFailed, Unreachable
from lucius.cli.migration_sample import Story, faults_of
from lucius.cli.runbook_client import RunbookClient
from lucius.cli.server import server_packages

WORKERS = 8
DRAIN_SECONDS = 5.0


def run_against(url: str, api_key: str) -> bool:
    """At a server that runs; says whether everything came out as it should."""
    try:
        with RunbookClient(url, api_key) as client:
            client.runbooks()
    except Unreachable as error:
        raise Unreachable(
            f"no LUCIUS answers at {url}: start one with `make run` or `lucius up`, or give --up for one of its own"
        ) from error
    return asyncio.run(_play(url, api_key))


def run_alone() -> bool:
    """With a server in a temporary folder, which ends with the story."""
    with server_packages():
        import uvloop
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_play_alone())


async def _play_alone() -> bool:
    with tempfile.TemporaryDirectory(prefix="lucius-migration-") as folder:
        async with _server(Path(folder)) as (url, api_key, stopped):
            playing = asyncio.create_task(_play(url, api_key))
            waited: list[asyncio.Future[Any]] = [playing, stopped]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                playing.cancel()
                await asyncio.wait({playing})
                raise click.Abort
            return playing.result()


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[tuple[str, str, asyncio.Future[None]]]:
    """A server of its own: address, key, and a future that is done when somebody asks it to stop."""
    with server_packages():
        from msgspec.structs import replace

        from lucius.api.serving import listen, served
        from lucius.bootstrap import open_app
        from lucius.secrets_kept import with_secrets
        from lucius.settings import Settings
        from lucius.telemetry.logs import configure_logs

    # The defaults, whatever the environment says: it may be that of another server.
    settings = with_secrets(Settings(data=str(folder), port=0, log_level="WARNING", log_format="text"))
    configure_logs(settings)
    listener = listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    async with open_app(settings) as desk, served(desk, listener) as server:
        click.echo(f"A LUCIUS of its own is up at {desk.settings.public_url}, in {folder}.")
        stopped = asyncio.ensure_future(server.until_stopped())
        try:
            yield desk.settings.public_url, desk.settings.api_key, stopped
        finally:
            stopped.cancel()
            desk.stopping.set()


async def _play(url: str, api_key: str) -> bool:
    """The story in a thread, and beside it the worker that does the work."""
    stop = threading.Event()
    with RunbookClient(url, api_key) as client:
        story = Story(client, stop)
        try:
            await asyncio.to_thread(story.publish)
            async with _worker(url, api_key):
                telling = asyncio.ensure_future(asyncio.to_thread(_tell, story))
                try:
                    return await asyncio.shield(telling)
                finally:
                    stop.set()
                    await asyncio.wait({telling})  # While its server is still there.
                    telling.exception()  # Of a story that was stopped, nobody needs to hear how.
        except CommandFailed as error:
            click.echo(f"\nThe migration did not come to its end: {error.message}", err=True)
            return False


def _tell(story: Story) -> bool:
    from lucius.cli.batch import show_grid

    batch = story.run()
    members = story.members()
    click.echo()
    show_grid(batch, members)
    faults = faults_of(batch, members)
    for fault in faults:
        click.echo(f"Not as it should be: {fault}", err=True)
    if not faults:
        click.echo(
            "\nAs it should be: 7 mailboxes are moved, 1 failed and was rolled back, 1 was taken out.\n"
            f"Batch {batch['batch_id']} ended failed, because one of its members did."
        )
    return not faults


@asynccontextmanager
async def _worker(url: str, api_key: str) -> AsyncIterator[None]:
    """The example's functions, on a tenant that is forgotten afterwards."""
    from lucius.functions import WorkerSettings

    with tempfile.TemporaryDirectory(prefix="lucius-tenant-") as folder:
        functions = _functions(folder)
        # One of them fails, as it must; the story tells of it, and the worker's log need not.
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
    from lucius.migration import functions

    functions.tenant = functions.Tenant(folder)
    return functions
