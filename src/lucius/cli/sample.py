"""The sample job: three questions about a contract in PDF, from command to answer."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import uuid
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from lucius.cli.client import Client
from lucius.cli.envelope import read_envelope
from lucius.cli.failures import CommandFailed, printable
from lucius.cli.watching import watch

COMMAND_FILE = "ocr_embedding_sis.json"
SAMPLE_SECONDS_MAX = 60.0


async def run_sample(
    url: str, api_key: str, folder: Path | None = None, timeout_seconds: float = SAMPLE_SECONDS_MAX
) -> bool:
    """Submit the sample, show it until it ends, print the answers; says whether it succeeded.

    The files are laid out in `folder` (without one, in a temporary folder that stays, as the result is in it). The
    work is done in a thread, so the server may share this event loop.
    """
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(_run, url, api_key, folder, timeout_seconds, stop))
    try:
        return await asyncio.shield(work)
    finally:
        stop.set()
        await asyncio.wait({work})  # While its server is still there: it would look for one for a while.


def _run(url: str, api_key: str, folder: Path | None, timeout_seconds: float, stop: threading.Event) -> bool:
    run_id = uuid.uuid4().hex
    root = (folder or Path(tempfile.mkdtemp(prefix="lucius-sample-"))) / run_id[:12]
    envelope = lay_out(root.resolve())
    # Each run is to be seen working; without a key of its own it would be answered with the job of the last one.
    envelope["idempotency_key"] = f"sample-{run_id}"
    try:
        with Client(url, api_key) as client:
            accepted, _ = client.submit(envelope)
            click.echo(
                f"\nSample job {accepted.get('jobId')}: {len(prompts_of(envelope))} questions about contract.pdf\n"
            )
            job = watch(client, str(accepted.get("jobId")), timeout_seconds, stop)
    except CommandFailed as error:
        click.echo(f"The sample job did not finish: {error.message}", err=True)
        return False
    if job.get("status") != "SUCCEEDED":
        click.echo(f"The sample job is {job.get('status')}.", err=True)
        return False
    for line in answer_lines(envelope):
        click.echo(line)
    return True


def lay_out(folder: Path) -> dict[str, Any]:
    """Copy the packaged sample files into `folder`; the command, with refs that point there."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in resources.files("lucius.reference").joinpath("samples").iterdir():
        if source.is_file():
            (folder / source.name).write_bytes(source.read_bytes())
    return read_envelope((folder / COMMAND_FILE).read_bytes(), folder, COMMAND_FILE)


def prompts_of(envelope: dict[str, Any]) -> list[str]:
    prompts: list[str] = envelope["payload"]["sis"]["prompt_set"]
    return prompts


def answer_lines(envelope: dict[str, Any]) -> list[str]:
    """The questions with their answers, read from where the command wanted its result."""
    path = Path(unquote(urlsplit(str(envelope["output_ref"])).path))
    try:
        answers = json.loads(path.read_bytes())["answers"]
        lines = [""]
        for one in answers:
            lines += [f"  {printable(one['prompt'])}", f"    {printable(one['answer'])} (page {one['page']})"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"The result at {path} cannot be shown: {error}"]
    return [*lines, "", f"Result: {path}"]
