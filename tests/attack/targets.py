"""What is attacked: LUCIUS as its users run it, in three deployments, each of real processes on loopback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.attack.http_floods import KEY
from tests.attack.http_probe import STALL_SERVER, Server, bystander_keys
from tests.crash.processes import API_KEY, CALLBACK_KEYS, LUCIUS, Process, free_port
from tests.temporal.server import TemporalServer

EMBEDDED, POSTGRES, TEMPORAL = "embedded", "postgres", "temporal"
DEPLOYMENTS = (EMBEDDED, POSTGRES, TEMPORAL)

SUBMIT_SECONDS = {EMBEDDED: 0.025, POSTGRES: 0.025, TEMPORAL: 0.05}
"""How often a bystander submits during a flood. Temporal's server and worker take some 25 ms of processor for a job: at
40 jobs a second they leave too little of two cores for anything else to be measured."""

CALM = {
    "LUCIUS_LOG_LEVEL": "ERROR",
    "LUCIUS_ACK_TIMEOUT_SECONDS": "600",
    "LUCIUS_MANAGEMENT_PORT": "0",
}
"""No timeout comes round while an attack is looked at."""


class Target(NamedTuple):
    deployment: str
    apis: tuple[Process, ...]
    key: str = API_KEY

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{api.port}" for api in self.apis]


@contextmanager
def started(
    deployment: str,
    folder: Path,
    postgres_url: str,
    settings: Mapping[str, str] | None = None,
    program: Callable[[str], Sequence[str | Path]] = lambda role: (LUCIUS,),
) -> Iterator[Target]:
    """The deployment, ready; its processes are gone when this ends. `program` starts those that serve the API."""
    with ExitStack() as stack:
        common = {**CALM, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS, **(settings or {})}

        def start(role: str, *words: str, **more: str) -> Process:
            port = free_port() if role in ("api", "up") else None
            chosen = program(role) if port else (LUCIUS,)
            own = folder / f"{role}-{port}"
            process = Process(role, *words, settings=common | more, folder=own, port=port, program=chosen)
            return stack.enter_context(process)

        if deployment == EMBEDDED:
            yield Target(deployment, (start("up", "--no-services", LUCIUS_DATA=str(folder / "data")),))
            return
        common["LUCIUS_LEDGER"] = postgres_url
        if deployment == TEMPORAL:
            temporal = stack.enter_context(TemporalServer(folder, "--sqlite-pragma", "synchronous=off"))
            common |= {"LUCIUS_ENGINE": "temporal", "LUCIUS_TEMPORAL_ADDRESS": temporal.address}
        apis = tuple(start("api", LUCIUS_DATA=str(folder / f"data-{number}")) for number in range(2))
        start("reconciler")
        if deployment == TEMPORAL:
            start("worker")
        else:
            start("runbooks")
        yield Target(deployment, apis)


@contextmanager
def watched(deployment: str, folder: Path, postgres_url: str) -> Iterator[list[Server]]:
    """The same, with a probe in the event loop of each process that serves."""
    stalls: list[Path] = []

    def program(role: str) -> list[str | Path]:
        stalls.append(folder / f"stall-{len(stalls)}")
        stalls[-1].write_bytes(bytes(8))
        return [sys.executable, STALL_SERVER, stalls[-1]]

    settings = {
        "LUCIUS_API_KEY": KEY,
        "LUCIUS_API_KEYS_FILE": bystander_keys(folder),
        "LUCIUS_MAX_INFLIGHT_PER_TENANT": "100000",
    }
    with started(deployment, folder, postgres_url, settings, program) as target:
        yield [
            Server(url, api.pid, api.log_file, stall, SUBMIT_SECONDS[deployment])
            for url, api, stall in zip(target.urls, target.apis, stalls, strict=True)
        ]
