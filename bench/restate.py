"""`python -m bench.restate`: three durable steps on Restate beside three-step jobs here, in the same run.

Restate's server and its SDK for Node are installed from the npm registry by name, into a folder that is gone
afterwards: they are no part of `make setup`. Each call of the handler is answered when its three steps are done. Rounds
of the two alternate, because the machine changes speed while they run; only the ratio within a round is to be quoted.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import platform
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from bench.harness import HarnessOptions, open_harness
from bench.http import Connection, render_head
from bench.processes import ROOT, BenchError, Process, free_port, run_module, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- restate:begin -->", "<!-- restate:end -->")
SERVER_VERSION, SDK_VERSION = "1.7.12", "1.17.2"
INSTALL_SECONDS_MAX = 300.0
SLACK_SECONDS = 60.0
WARM_UP_SECONDS = 2.0
INFLIGHT = (100, 200, 300)
GOAL = 5.0


class Calls(msgspec.Struct):
    done: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.done / self.seconds


class Round(NamedTuple):
    inflight: int
    lucius: float
    lucius_cpu_ms: float
    """Of the server and the services, a job."""
    restate: float
    restate_cpu_ms: float


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
    shutil.copy(Path(__file__).with_name(script.name), script)
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


# --- The load, in a process of its own ------------------------------------------------------------------------------


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
        options = ("load", "--port", str(restate.port), "--inflight", str(inflight), "--seconds", str(length))
        answer = run_module("bench.restate", *options, seconds_max=length + 2 * SLACK_SECONDS)
        calls = msgspec.json.decode(answer, type=Calls)
    return calls.per_second, (restate.cpu_seconds() - cpu) * 1000 / max(1, calls.done)


def measure_lucius(folder: Path, inflight: int, seconds: float) -> tuple[float, float]:
    with open_harness(folder, HarnessOptions()) as harness:
        harness.load(inflight, 500, WARM_UP_SECONDS)
        run = harness.load(inflight, 1_000_000, seconds)
    if not run.clean or run.cpu_ms_per_job is None:
        raise BenchError(f"ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return run.jobs_per_second, run.cpu_ms_per_job.server + run.cpu_ms_per_job.services


def measure(rounds: int, seconds: float) -> list[Round]:
    found: list[Round] = []
    with scratch_folder("restate", RESULTS) as modules:
        program = install(modules)
        for at in range(rounds):
            for inflight in INFLIGHT:
                with scratch_folder("run", RESULTS) as folder, open_restate(program, folder, modules) as restate:
                    theirs = measure_restate(restate, inflight, seconds)
                with scratch_folder("run", RESULTS) as folder:
                    ours = measure_lucius(folder, inflight, seconds)
                found.append(Round(inflight, *ours, *theirs))
                text = f"{ours[0]:,.0f} jobs/s here, {theirs[0]:,.0f} calls/s of Restate"
                print(f"  round {at + 1}, {inflight} in flight: {text}", file=sys.stderr, flush=True)
    return found


def rows(found: list[Round]) -> Rows:
    made: Rows = [("in flight", "LUCIUS, jobs/s", "Restate, calls/s", "ratio", "CPU a job: LUCIUS", "Restate")]
    for inflight in INFLIGHT:
        here = [one for one in found if one.inflight == inflight]
        medians = [statistics.median(values) for values in zip(*[one[1:] for one in here], strict=True)]
        ratio = statistics.median(one.lucius / one.restate for one in here)
        made.append(
            (f"{inflight}", f"{medians[0]:,.0f}", f"{medians[2]:,.0f}", f"{ratio:.1f} ×", f"{medians[1]:.2f} ms",
             f"{medians[3]:.2f} ms")
        )  # fmt: skip
    return made


def headline(found: list[Round], rounds: int, seconds: float) -> str:
    ratio = statistics.median(one.lucius / one.restate for one in found)
    return (
        f"Medians of {rounds} alternating rounds of {seconds:.0f} s each, Restate {SERVER_VERSION} with its SDK for"
        f" Node {SDK_VERSION}. The ratio of all rounds: {ratio:.1f} × (goal {GOAL:.0f} ×, reached:"
        f" {'yes' if ratio >= GOAL else 'no'})."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.restate", description=__doc__)
    parser.add_argument("mode", nargs="?", choices=["compare", "load"], default="compare")
    parser.add_argument("--quick", action="store_true", help="one short round; writes no page")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--port", type=int, default=0, help="of `load`, as is --inflight")
    parser.add_argument("--inflight", type=int, default=INFLIGHT[0])
    options = parser.parse_args()
    if options.mode == "load":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(msgspec.json.encode(runner.run(call(options.port, options.inflight, options.seconds))).decode())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds, seconds = (1, 3.0) if options.quick else (options.rounds, options.seconds)
    try:
        found = measure(rounds, seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"{headline(found, rounds, seconds)}\n\n{aligned(rows(found))}")
    if not options.quick:
        replace_between(PAGE, MARKS, f"{headline(found, rounds, seconds)}\n\n{markdown(rows(found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
