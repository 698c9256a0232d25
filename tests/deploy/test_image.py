"""The image, of which no engine is here to build it: its Dockerfile is linted, and what it would contain runs as it
would: every role by another user, from a folder that nobody can write, with its documented settings alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.crash.processes import API_KEY, CALLBACK_KEYS, free_port
from tests.deploy.chart import ROOT
from tests.deploy.image_tree import USER, build, library_path
from tests.deploy.rolling import pass_on
from tests.temporal.server import TemporalServer

START_SECONDS_MAX = 60.0
ROLES = ("api", "worker", "reconciler", "scheduler", "runbooks")


def test_dockerfile_is_linted() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    ran = subprocess.run(
        [hadolint, ROOT / "deploy" / "image" / "Dockerfile"], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.fixture
def tree() -> Iterator[Path]:
    # Not pytest's own folder: others cannot read that.
    with tempfile.TemporaryDirectory(prefix="lucius-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        build(folder)
        yield folder
        for path in (folder, *folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


@asynccontextmanager
async def reachable(url: str) -> AsyncIterator[str]:
    """A database behind a Unix socket, which the other user cannot open, on a port."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if "host" not in query:
        yield url
        return
    path = f"{query['host']}/.s.PGSQL.{query.get('port', '5432')}"

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"


@contextmanager
def started(
    tree: Path, data: Path, words: list[str], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    is_root = os.getuid() == 0
    home = data / words[0]
    home.mkdir(mode=0o700)
    if is_root:
        os.chown(home, USER, USER)
    environment = {"PATH": "/usr/bin:/bin", "LUCIUS_DATA": str(home), **library_path(tree), **variables}
    with (data / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [tree / "opt" / "bin" / "lucius", *words], env=environment, cwd=home, stdout=log, stderr=log,
            user=USER if is_root else None, group=USER if is_root else None, extra_groups=[] if is_root else None,
        )  # fmt: skip
    try:
        assert not is_root or Path(f"/proc/{process.pid}").stat().st_uid == USER
        yield process
        process.terminate()
        assert process.wait(30) == 0, f"{words}: {(data / f'{words[0]}.log').read_text()}"
    finally:
        process.kill()
        process.wait()


def _until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not _is_ready(port):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


@pytest.mark.timeout(400)
async def test_every_role_runs_by_another_user_from_a_folder_that_nobody_can_write(
    tree: Path, tmp_path: Path, postgres_url: str
) -> None:
    port = free_port()
    with TemporalServer(tmp_path) as temporal_server, tempfile.TemporaryDirectory(prefix="lucius-data-") as name:
        data = Path(name)
        data.chmod(0o755)
        async with reachable(postgres_url) as ledger:
            await _run_roles(tree, data, port, ledger, temporal_server.address)


async def _run_roles(tree: Path, data: Path, port: int, ledger: str, temporal: str) -> None:
    variables = {
        "LUCIUS_LEDGER": ledger,
        "LUCIUS_API_KEY": API_KEY,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_ORCHESTRATOR_URL": f"http://127.0.0.1:{port}",
        "LUCIUS_ENGINE": "temporal",
        "LUCIUS_TEMPORAL_ADDRESS": temporal,
    }
    await asyncio.to_thread(_run_all, tree, data, port, variables)


def _run_all(tree: Path, data: Path, port: int, variables: dict[str, str]) -> None:
    with ExitStack() as stack:
        for role in ROLES:
            management = free_port()
            own = {**variables, "LUCIUS_PORT": str(port), "LUCIUS_MANAGEMENT_PORT": str(management)}
            process = stack.enter_context(started(tree, data, [role], own))
            _until_ready(management, process, data / f"{role}.log")
        health = free_port()
        service = {
            "LUCIUS_ORCHESTRATOR_URL": variables["LUCIUS_ORCHESTRATOR_URL"],
            "LUCIUS_API_KEY": API_KEY,
            "LUCIUS_PLATFORM_HEALTH_PORT": str(health),
            "LUCIUS_PLATFORM_STATE": str(data / "platform"),
        }
        process = stack.enter_context(started(tree, data, ["platform", "ocr"], service))
        _until_ready(health, process, data / "platform.log")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/admin/workers", headers={"Authorization": f"Bearer {API_KEY}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert "ocr" in json.dumps(json.load(answer))
