"""Who this process is, the secrets that it needs, the keys of its callers, and who else can read its files."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from lucius.auth import Authenticator
from lucius.azure.credential import AzureIdentity
from lucius.azure.key_vault import BadReference, KeyVault, SecretUnreadable, read_reference
from lucius.bootstrap import open_registry
from lucius.bootstrap.registry import APPCONFIG, is_in_appconfig
from lucius.bootstrap.secrets import open_secrets
from lucius.doctor.part import Part
from lucius.local_secrets import LOOPBACK, callback_keys, is_embedded
from lucius.ports.readiness import NotReady
from lucius.private_files import OTHERS, OWN_NAMES
from lucius.referenced_secrets import references_of
from lucius.settings import Settings, SettingsError

STORAGE_SCOPE = "https://storage.azure.com/.default"
SERVICEBUS_SCOPE = "https://servicebus.azure.net/.default"
PASS_THROUGH = 0o011
VAULT_SCOPE = "https://vault.azure.net/.default"


def data_folder_part(settings: Settings) -> Part:
    async def look() -> str:
        return await asyncio.to_thread(_look_at_folder, Path(settings.data))

    remedy = "Start LUCIUS as the owner of the folder, which closes it to others, or choose another (LUCIUS_DATA)."
    return Part(name="data folder", look=look, remedy=remedy)


def _look_at_folder(folder: Path) -> str:
    if not folder.exists():
        return f"{folder} is made by the first start"
    if not folder.is_dir():
        raise NotReady(f"{folder} is no folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise NotReady(f"{folder} cannot be used by user {os.geteuid()}")
    for path in (folder, *(one for one in folder.iterdir() if one.name.startswith(OWN_NAMES))):
        found = path.lstat()
        # Under root, the PostgreSQL of a profile is another user, who passes through the folder and reads nothing.
        others = OTHERS & ~PASS_THROUGH if path == folder else OTHERS
        if found.st_mode & others and not stat.S_ISLNK(found.st_mode):
            raise NotReady(f"{path} is open to other users: mode {stat.S_IMODE(found.st_mode):o}")
    return f"{folder} belongs to this user alone"


def identity_parts(settings: Settings, identity: AzureIdentity) -> Sequence[Part]:
    """None if nothing on Azure is used with a credential."""
    scopes = sorted(set(_scopes(settings)))
    if not scopes:
        return []

    async def look() -> str:
        from azure.core.exceptions import ClientAuthenticationError

        for scope in scopes:
            try:
                await identity.credential().get_token(scope)
            except (ClientAuthenticationError, ValueError) as error:
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                raise NotReady(f"no token for {scope.removesuffix('/.default')}: {reason}") from error
        return f"{identity.name}: tokens for {', '.join(scope.split('/')[2] for scope in scopes)}"

    remedy = "See LUCIUS_AZURE_CREDENTIAL and LUCIUS_AZURE_CLIENT_ID, and that this machine has the identity."
    return [Part(name="identity", look=look, remedy=remedy)]


def _scopes(settings: Settings) -> Iterator[str]:
    if settings.bus == "servicebus" and settings.servicebus_namespace:
        yield SERVICEBUS_SCOPE
    if settings.storage_account and not settings.storage_connection and not settings.storage_sas:
        yield STORAGE_SCOPE
    if is_in_appconfig(settings) and not settings.appconfig_connection:
        yield f"https://{settings.registry.removeprefix(APPCONFIG).strip('/')}/.default"
    for _, text in references_of(settings):
        reference = read_reference(text)
        if reference is not None and reference.host.endswith(VAULT_SCOPE.split("/")[2]):
            yield VAULT_SCOPE


def secrets_part(settings: Settings, identity: AzureIdentity) -> Part:
    async def look() -> str:
        if not settings.callback_keys and not is_embedded(settings):
            raise NotReady("LUCIUS_CALLBACK_KEYS is not set, and processes that share a ledger must share these keys")
        async with open_secrets(settings, identity) as secrets:
            callback_keys(secrets.settings)
        webhooks = await _unreadable_webhook_secrets(settings, identity)
        if webhooks:
            raise NotReady("; ".join(webhooks))
        count = len(list(references_of(settings)))
        return f"callback keys {'generated' if not settings.callback_keys else 'set'}; {count} settings in Key Vault"

    remedy = "Set the variable, or give this process's identity the role Key Vault Secrets User on the vault."
    return Part(name="secrets", look=look, remedy=remedy)


async def _unreadable_webhook_secrets(settings: Settings, identity: AzureIdentity) -> list[str]:
    vault = KeyVault(identity)
    found = []
    try:
        async with open_registry(settings, identity, examines=True) as registry:
            tenants = registry.snapshot().tenants
        for tenant in tenants.values():
            variable = tenant.webhook_secret_env
            text = os.environ.get(variable, "") if variable else tenant.webhook_secret
            if text == "":
                found.append(f"tenant {tenant.id}: {variable} is not set")
            elif text is not None:
                try:
                    reference = read_reference(text)
                    if reference is not None:
                        await vault.get(reference)
                except (BadReference, SecretUnreadable) as error:
                    found.append(f"tenant {tenant.id}: {error}")
    finally:
        await vault.close()
    return found


def api_keys_part(settings: Settings, identity: AzureIdentity) -> Part:
    async def look() -> str:
        has_tokens = bool(settings.jwt_issuer)
        async with open_secrets(settings, identity) as secrets:
            authenticator = Authenticator(secrets.settings, key_source=secrets.api_keys())
            if authenticator.is_configured:
                if has_tokens:
                    await authenticator.fetch_token_keys()
                return f"in force{', and the keys of ' + settings.jwt_issuer if has_tokens else ''}"
        if is_embedded(settings) and settings.host in LOOPBACK:
            return "one is generated and kept in the data folder"
        raise SettingsError("nobody can log in: set LUCIUS_API_KEY, LUCIUS_API_KEYS_FILE or LUCIUS_JWT_ISSUER")

    return Part(name="api keys", look=look, remedy="See LUCIUS_API_KEY, LUCIUS_API_KEYS_FILE and LUCIUS_JWT_*.")
