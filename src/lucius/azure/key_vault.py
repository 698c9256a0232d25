"""Secrets in Azure Key Vault, and the references that name them. An error names the secret, never its value."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lucius.azure.credential import AzureIdentity

SCHEME = "keyvault://"
FORM = "keyvault://VAULT/SECRET or keyvault://VAULT/SECRET/VERSION"
PUBLIC_SUFFIX = "vault.azure.net"
CALL_SECONDS = 15.0
RETRIES: dict[str, Any] = {"retry_total": 3, "retry_backoff_factor": 0.2, "retry_backoff_max": 5}
DETAIL_CHARS_MAX = 200

_HOST = re.compile(r"[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*(:[0-9]{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9-]{1,127}")
_VERSION = re.compile(r"[A-Za-z0-9]{1,64}")


class BadReference(ValueError):
    """A reference that names no secret; the text says what is wrong."""


class SecretUnreadable(Exception):
    """A secret that cannot be read now; the text says which, why and what to do."""


class SecretReference(NamedTuple):
    host: str
    """Of the vault."""
    name: str
    version: str = ""
    """Empty means the newest."""

    def __str__(self) -> str:
        return SCHEME + "/".join(filter(None, self))


def read_reference(text: str) -> SecretReference | None:
    """The secret that a value names; None if the value is no reference. Raises `BadReference`.

    Understands `keyvault://VAULT/SECRET[/VERSION]`, where a vault without a dot is one of Azure's public cloud, and the
    JSON by which App Configuration refers to Key Vault: `{"uri": "https://VAULT.vault.azure.net/secrets/SECRET"}`.
    """
    text = text.strip()
    if text.startswith(SCHEME):
        host, *rest = text.removeprefix(SCHEME).split("/")
        if host and "." not in host:
            host = f"{host}.{PUBLIC_SUFFIX}"
    elif text.startswith("{"):
        uri = _uri(text)
        if uri is None:
            return None
        parts = urlsplit(uri)
        host, (kind, *rest) = parts.netloc, parts.path.strip("/").split("/")
        if parts.scheme != "https" or kind != "secrets":
            raise BadReference("the uri of a Key Vault reference must be https://VAULT.vault.azure.net/secrets/SECRET")
    else:
        return None
    name, version = (*rest, "", "")[:2]
    if len(rest) > 2 or not _HOST.fullmatch(host) or not _NAME.fullmatch(name) or not _is_version(rest, version):
        raise BadReference(f"a Key Vault reference must be {FORM}")
    return SecretReference(host, name, version)


def _is_version(rest: list[str], version: str) -> bool:
    return len(rest) < 2 or bool(_VERSION.fullmatch(version))


def _uri(text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    uri = value.get("uri") if isinstance(value, dict) else None
    return uri if isinstance(uri, str) else None


class KeyVault:
    """Clients of vaults, made as they are needed, with the one credential of the process."""

    def __init__(self, identity: AzureIdentity, ca_file: str = "") -> None:
        """`ca_file`: the authority to trust instead of the system's, for stand-ins."""
        self._identity = identity
        self._options: dict[str, Any] = {**RETRIES, **({"connection_verify": ca_file} if ca_file else {})}
        self._clients: dict[str, Any] = {}

    async def get(self, reference: SecretReference) -> str:
        """Raises `SecretUnreadable`."""
        try:
            from azure.core import exceptions

            client = self._client(reference.host)
        except ModuleNotFoundError as error:
            raise SecretUnreadable("Key Vault needs the extra `azure`: pip install '.[azure]'") from error
        place = f"the secret {reference.name} of the vault {reference.host}"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                found = await client.get_secret(reference.name, reference.version or None)
        except exceptions.ResourceNotFoundError as error:
            raise SecretUnreadable(f"{place} does not exist, or not in this version") from error
        except exceptions.ClientAuthenticationError as error:
            raise SecretUnreadable(
                f"{place} cannot be read: Azure does not say who this process is (LUCIUS_AZURE_CREDENTIAL="
                f"{self._identity.name}): {_first_line(error)}"
            ) from error
        except exceptions.HttpResponseError as error:
            if error.status_code == 403:
                raise SecretUnreadable(
                    f"{place} may not be read: assign the role Key Vault Secrets User to this process's identity, and"
                    " see that the secret is enabled and the vault's firewall lets this machine in"
                ) from error
            raise SecretUnreadable(f"{place} cannot be read: the vault answers {error.status_code}") from error
        except (exceptions.AzureError, OSError, TimeoutError, ValueError) as error:
            raise SecretUnreadable(
                f"{place} cannot be read: the vault is out of reach ({type(error).__name__})"
            ) from error
        if not found.value:
            raise SecretUnreadable(f"{place} is empty")
        return str(found.value)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    def _client(self, host: str) -> Any:
        client = self._clients.get(host)
        if client is None:
            from azure.keyvault.secrets.aio import SecretClient

            client = SecretClient(f"https://{host}", self._identity.credential(), **self._options)
            self._clients[host] = client
        return client


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:DETAIL_CHARS_MAX]
