"""The stand-ins for Azure that ship with LUCIUS, as processes: Service Bus and App Configuration.

Both keep everything in memory. They are started with the topics and the documents of the registry, so that a restart
finds these again; messages are gone then, and LUCIUS sends again what nobody has acknowledged. Keys are made once, kept
in the data folder and passed by environment, not on a command line.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from lucius.bootstrap import bus_topics
from lucius.bootstrap.registry import registry_rules
from lucius.buses.servicebus.printing import as_json
from lucius.local_secrets import stored_secret
from lucius.profiles.part import PartPlan
from lucius.profiles.ports import HOST, free_port
from lucius.profiles.server import Server
from lucius.registries.appconfig.keys import SENTINEL, key_of
from lucius.registries.appconfig.reading import YAML_TYPE
from lucius.registries.appconfig.sentinel import SENTINEL_TYPE, SentinelText, digest_of
from lucius.registries.files import SHIPPED, read_folder
from lucius.registries.problems import RegistryError
from lucius.settings import Settings

CA_FILE = "servicebus-test-ca.pem"
KEY_NAME = "RootManageSharedAccessKey"
KEY_ID = "lucius"
SAMPLE_WORKERS = ("exchange",)
"""Function workers of `lucius runbook sample`; the subscriptions of others are made by `lucius bus provision`."""


def plan_servicebus(lucius: Sequence[str], settings: Settings, folder: Path, environment: Mapping[str, str]) -> Server:
    """Raises `RegistryError`."""
    key = stored_secret(folder / "servicebus-key", _base64_key)
    topics = asyncio.run(bus_topics(settings, SAMPLE_WORKERS))
    config = _write(folder / "servicebus.json", as_json(topics))
    port, administration_port = free_port(), free_port()
    authority = folder / "servicebus-ca"
    authority.mkdir(exist_ok=True)

    async def listens(log_text: str) -> bool:
        return "Administration API on" in log_text

    access = f"SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};UseDevelopmentEmulator=true;"
    command = [
        *lucius, "servicebus-emulator", "--port", str(port), "--config", str(config), "--key-name", KEY_NAME,
        "--administration-port", str(administration_port), "--ca-folder", str(authority),
    ]  # fmt: skip
    return Server(
        plan=PartPlan(
            name="servicebus",
            command=command,
            environment={**environment, "SERVICEBUS_EMULATOR_KEY": key},
            is_ready=listens,
        ),
        settings={
            "LUCIUS_BUS": "servicebus",
            "LUCIUS_SERVICEBUS_CONNECTION": f"Endpoint=sb://{HOST}:{port};{access}",
            "LUCIUS_SERVICEBUS_NAMESPACE": "",
            "LUCIUS_SERVICEBUS_ADMINISTRATION": f"Endpoint=sb://{HOST}:{administration_port};{access}",
            "LUCIUS_SERVICEBUS_ADMINISTRATION_CA_FILE": str(authority / CA_FILE),
        },
        label="Service Bus",
        address=f"{HOST}:{port}, administration https://{HOST}:{administration_port}",
    )


def plan_appconfig(lucius: Sequence[str], settings: Settings, folder: Path, environment: Mapping[str, str]) -> Server:
    """With the registry that the settings name, or the one that ships. Raises `RegistryError`."""
    secret = stored_secret(folder / "appconfig-secret", _base64_key)
    source = Path(settings.registry) if settings.registry else SHIPPED
    contents = read_folder(source, registry_rules(settings))
    if contents.problems:
        raise RegistryError(contents.problems)
    documents = {key_of(name): document.content.decode() for name, document in contents.documents.items()}
    sentinel = SentinelText(digest=digest_of(documents), push_id="profile", summary=f"from {source.name}").encoded()
    key_values = [{"key": key, "value": value, "content_type": YAML_TYPE} for key, value in documents.items()]
    key_values.append({"key": SENTINEL, "value": sentinel, "content_type": SENTINEL_TYPE})
    file = _write(folder / "appconfig.json", json.dumps(key_values, indent=2))
    port = free_port()

    async def listens(log_text: str) -> bool:
        return "App Configuration stand-in on" in log_text

    command = [*lucius, "appconfig-emulator", "--port", str(port), "--key-id", KEY_ID, "--key-values", str(file)]
    return Server(
        plan=PartPlan(
            name="appconfig",
            command=command,
            environment={**environment, "APPCONFIG_EMULATOR_SECRET": secret},
            is_ready=listens,
        ),
        settings={
            "LUCIUS_REGISTRY": "appconfig://",
            "LUCIUS_REGISTRY_LABEL": "",
            "LUCIUS_REGISTRY_CACHE": "",
            "LUCIUS_APPCONFIG_CONNECTION": f"Endpoint=http://{HOST}:{port};Id={KEY_ID};Secret={secret}",
        },
        label="App Config",
        address=f"http://{HOST}:{port}",
    )


def _base64_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _write(path: Path, text: str) -> Path:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)
    return path
