"""LUCIUS's roles on PostgreSQL and a Temporal server, as processes, and the little that a client and a service do."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.crash.client import Client, submit
from tests.crash.processes import CALLBACK_KEYS, Process, free_port, run_lucius
from tests.temporal.server import TemporalServer

IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")


class RolesHarness:
    def __init__(self, folder: Path, ledger: str, temporal: TemporalServer, stack: ExitStack) -> None:
        self.settings = {
            "LUCIUS_LEDGER": ledger,
            "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
            "LUCIUS_ENGINE": "temporal",
            "LUCIUS_TEMPORAL_ADDRESS": temporal.address,
            "LUCIUS_TEMPORAL_RECONCILE_INTERVAL": "0.5",
            "LUCIUS_LOG_LEVEL": "WARNING",
        }
        self.temporal = temporal
        self._folder = folder
        self._stack = stack

    def start(self, role: str, *words: str, **settings: str) -> Process:
        """A role that is ready; it is gone when the stand is."""
        port = free_port() if role in ("api", "up") else None
        process = Process(role, *words, settings=self.settings | settings, folder=self._folder / role, port=port)
        return self._stack.enter_context(process)

    def lucius(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_lucius(*words, settings=self.settings)


@contextmanager
def roles_harness(folder: Path, ledger: str) -> Iterator[RolesHarness]:
    with TemporalServer(folder) as temporal, ExitStack() as stack:
        yield RolesHarness(folder, ledger, temporal, stack)


def client_of(api: Process) -> Client:
    assert api.port is not None
    return Client([api.port], random.Random(1))


async def submit_one_step(client: Client, key: str) -> str:
    command = {
        "tenant_id": "acme", "request_type": "OCR", "input_ref": "https://a.example/in", "payload": {},
        "output_ref": "https://a.example/out", "schema_version": "1", "idempotency_key": key,
    }  # fmt: skip
    return await submit(client, command)


async def pull(client: Client, wait_seconds: float = 10.0) -> list[dict[str, Any]]:
    body = {"service": "ocr", "max": 10, "wait_seconds": wait_seconds}
    return list((await client.ask("POST", "/v1/directives:pull", body)).body["directives"])


async def finish(client: Client, directive: dict[str, Any]) -> dict[str, Any]:
    """Report success; the job once it has ended."""
    body = {name: directive[name] for name in IDS} | {"status": "SUCCEEDED"}
    token = directive["callback_token"]
    answer = await client.ask("POST", "/v1/callbacks/result", body, Lucius_Callback_Token=token)
    assert answer.status == 200, answer
    return await ended(client, directive["jobId"])


async def ended(client: Client, job_id: str) -> dict[str, Any]:
    for _ in range(6):
        job: dict[str, Any] = await client.read(f"/v1/jobs/{job_id}?wait_seconds=10")
        if job["completed_at"] is not None:
            break
    return job
