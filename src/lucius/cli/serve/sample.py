"""The sample job: three questions about a contract in PDF, from command to answer."""

from __future__ import annotations

import asyncio
import json
import shlex
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import click

from lucius.cli.connection import open_session
from lucius.cli.failures import CommandFailed, printable
from lucius.cli.jobs.watch import watch
from lucius.cli.output.printing import show_line
from lucius.cli.output.program import program
from lucius.client.addresses import URL_DEFAULT
from lucius.client.calls import jobs as job_calls
from lucius.client.keys import DATA_DEFAULT, DATA_VARIABLE
from lucius.platform.file_roots import FILES_FOLDER, SAMPLES, tenant_folder

COMMAND_FILE = "ocr_embedding_sis.json"
SAMPLE_SECONDS_MAX = 60.0
RESULT_BYTES_MAX = 1_000_000


async def run_sample(
    url: str,
    api_key: str,
    data: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    timeout_seconds: float = SAMPLE_SECONDS_MAX,
) -> bool:
    """Submit the sample, show it until it ends, print the answers; returns whether it succeeded.

    The result goes to the tenant's files in the data folder, or, if `environment` names a container of documents and a
    connection to it, to a blob there. The work is done in a thread, so the server may share this event loop.
    """
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(_run, url, api_key, data, environment, timeout_seconds, stop))
    try:
        return await asyncio.shield(work)
    finally:
        stop.set()
        await asyncio.wait({work})  # While the server is still up: later it would retry for a while.


def _run(
    url: str, api_key: str, data: Path, environment: Mapping[str, str], timeout_seconds: float, stop: threading.Event
) -> bool:
    connection = environment.get("LUCIUS_STORAGE_CONNECTION", "")
    blob_root = environment.get("LUCIUS_PLATFORM_BLOB_ROOTS", "") if connection else ""
    envelope = sample_command(data.resolve(), uuid.uuid4().hex, blob_root)
    try:
        with open_session(url, api_key) as client:
            accepted, _ = client.run(job_calls.submit_envelope(envelope))
            click.echo()
            show_line(f"Sample job {accepted.get('jobId')}: {len(prompts_of(envelope))} questions about contract.pdf")
            click.echo()
            job = watch(client, str(accepted.get("jobId")), timeout_seconds, stop)
    except CommandFailed as error:
        click.echo(f"The sample job did not finish: {error.message}", err=True)
        return False
    if job.get("status") != "SUCCEEDED":
        click.echo(f"The sample job is {job.get('status')}.", err=True)
        return False
    for line in answer_lines(envelope, connection):
        click.echo(line)
    click.echo(f"\nIn another terminal, this runs a mailbox migration on this server:\n  {next_command(url, data)}")
    return True


def next_command(url: str, data: Path) -> str:
    """Runs the runbook sample on this server, from this folder: with its address and its key's folder if needed."""
    folder = "" if data == Path(DATA_DEFAULT).absolute() else f"{DATA_VARIABLE}={shlex.quote(str(data))} "
    server = "" if url == URL_DEFAULT else f"--url {url} "
    return f"{folder}{program()} {server}runbook sample"


def sample_command(data: Path, run_id: str, blob_root: str = "") -> dict[str, Any]:
    """The packaged command, with an input that ships beside it and an output in the tenant's files, or below
    `blob_root` (`blob://container`)."""
    command: dict[str, Any] = json.loads((SAMPLES / COMMAND_FILE).read_bytes())
    root = f"{data.as_uri()}/{FILES_FOLDER}" if not blob_root else blob_root.rstrip("/")
    folder = f"{root}/{quote(tenant_folder(command['tenant_id']), safe='')}/sample/{run_id[:12]}"
    return {
        **command,
        "input_ref": (SAMPLES / command["input_ref"]).as_uri(),
        "output_ref": f"{folder}/{command['output_ref']}",
        # Without its own key, a run would return the job of the previous one.
        "idempotency_key": f"sample-{run_id}",
    }


def prompts_of(envelope: dict[str, Any]) -> list[str]:
    prompts: list[str] = envelope["payload"]["sis"]["prompt_set"]
    return prompts


def answer_lines(envelope: dict[str, Any], connection: str = "") -> list[str]:
    """The questions with their answers, read from the command's output_ref; `connection` is that of blobs."""
    parts = urlsplit(str(envelope["output_ref"]))
    path = Path(unquote(parts.path)) if parts.scheme == "file" else envelope["output_ref"]
    try:
        content = path.read_bytes() if isinstance(path, Path) else _read_blob(parts, connection)
        answers = json.loads(content)["answers"]
        lines = [""]
        for answer in answers:
            lines += [f"  {printable(answer['prompt'])}", f"    {printable(answer['answer'])} (page {answer['page']})"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"The result at {path} cannot be shown: {error}"]
    return [*lines, "", f"Result: {path}"]


def _read_blob(parts: SplitResult, connection: str) -> bytes:
    """Raises `OSError`."""
    from lucius.azure.blob import BlobAccount, BlobFailed

    async def read() -> bytes:
        async with BlobAccount.connected(connection) as account:
            return (await account.read(parts.netloc, unquote(parts.path).lstrip("/"), RESULT_BYTES_MAX)).content

    try:
        return asyncio.run(read())
    except BlobFailed as error:
        raise OSError(str(error)) from error
