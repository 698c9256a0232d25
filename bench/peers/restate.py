"""Restate: its server and its SDK for Node, installed from the npm registry by name, and a handler of three steps.

Each call of the handler is answered when its three steps are done. The program is the load, in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import platform
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from bench.http import Connection, render_head
from bench.processes import BenchError, Process, free_port, run_module

PROGRAMS = Path(__file__).parent / "programs"
SERVER_VERSION, SDK_VERSION = "1.7.12", "1.17.2"
INSTALL_SECONDS_MAX = 300.0
SLACK_SECONDS = 60.0
WARM_UP_SECONDS = 2.0


class Calls(msgspec.Struct):
    done: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.done / self.seconds


def install(folder: Path) -> Path:
    """The path of the server's program."""
    npm = shutil.which("npm")
    if npm is None:
        raise BenchError("npm is needed to install Restate")
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
    server = f"@restatedev/restate-server-{platform.system().lower()}-{machine}"
    packages = [f"{server}@{SERVER_VERSION}", f"@restatedev/restate-sdk@{SDK_VERSION}"]
    command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    done = subprocess.run(command, capture_output=True, timeout=INSTALL_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise BenchError(f"npm could not install {' and '.join(packages)}: {done.stderr.decode()[-1000:]}")
    return folder / "node_modules" / server / "bin" / "restate-server"


class Restate(NamedTuple):
    server: Process
    service: Process
    port: int

    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds() + self.service.cpu_seconds()


@contextmanager
def open_restate(program: Path, folder: Path, modules: Path) -> Iterator[Restate]:
    """A server on an empty folder with its defaults, and the service in a process of its own."""
    ingress, admin, node, service_port = (free_port() for _ in range(4))
    settings = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }
    script = modules / "restate_service.mjs"
    shutil.copy(PROGRAMS / script.name, script)
    command = [str(program), "--base-dir", str(folder / "data")]
    with Process("Restate", command, folder / "server.log", settings) as server:
        server.wait_ready(admin, "/health")
        arguments = ["node", str(script), str(service_port)]
        with Process("its service", arguments, folder / "service.log", {"NODE_ENV": "production"}) as service:
            register(admin, service_port)
            server.wait_ready(ingress, "/restate/health")
            yield Restate(server, service, ingress)


def register(admin: int, service_port: int) -> None:
    body = json.dumps({"uri": f"http://127.0.0.1:{service_port}"})
    until = time.monotonic() + SLACK_SECONDS
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30)
        try:
            connection.request("POST", "/deployments", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status < 300:
                return
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if time.monotonic() > until:
            raise BenchError(f"Restate does not take the service: {text[:500]}")
        time.sleep(0.2)


async def call(port: int, inflight: int, seconds: float) -> Calls:
    head = render_head("POST", "/bench/three")
    run = secrets.token_hex(16)
    done = 0
    started_at = time.perf_counter()
    until = started_at + seconds

    async def caller(number: int) -> None:
        nonlocal done
        async with await Connection.open(port) as connection:
            at = 0
            while time.perf_counter() < until:
                at += 1
                body = b'{"name":"%b-%d-%d"}' % (run.encode(), number, at)
                status, answer = await connection.request(head, body)
                if status != 200 or not answer.endswith(b'"steps":3}'):
                    raise BenchError(f"Restate answered {status}: {answer[:300]!r}")
                done += 1

    async with asyncio.timeout(seconds + SLACK_SECONDS), asyncio.TaskGroup() as tasks:
        for number in range(inflight):
            tasks.create_task(caller(number))
    return Calls(done, time.perf_counter() - started_at)


def measure_restate(restate: Restate, inflight: int, seconds: float) -> tuple[float, float]:
    """Calls a second, and milliseconds of processor a call."""
    calls = Calls(0, 1.0)
    cpu = 0.0
    for length in (WARM_UP_SECONDS, seconds):
        cpu = restate.cpu_seconds()
        options = ("--port", str(restate.port), "--inflight", str(inflight), "--seconds", str(length))
        answer = run_module("bench.peers.restate", *options, seconds_max=length + 2 * SLACK_SECONDS)
        calls = msgspec.json.decode(answer, type=Calls)
    return calls.per_second, (restate.cpu_seconds() - cpu) * 1000 / max(1, calls.done)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.restate", description="Calls Restate's service.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--inflight", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(msgspec.json.encode(runner.run(call(options.port, options.inflight, options.seconds))).decode())


if __name__ == "__main__":
    main()
