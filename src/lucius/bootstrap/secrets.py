"""Secrets that settings and tenants refer to, and who is told when they change."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from lucius.auth.keys import KeySecret, KeySource
from lucius.azure.credential import AzureIdentity
from lucius.azure.key_vault import KeyVault, read_reference
from lucius.domain.callbacks import CallbackKey
from lucius.engines.loops import every
from lucius.local_secrets import callback_keys
from lucius.ports.readiness import Check
from lucius.referenced_secrets import ReferencedSecrets, references_of
from lucius.settings import Settings, SettingsError
from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.logs import hide_in_logs

log = logging.getLogger("lucius.secrets")

API_KEYS_FILE = "LUCIUS_API_KEYS_FILE"


class Signer(Protocol):
    def use(self, keys: tuple[CallbackKey, ...]) -> None: ...


S = TypeVar("S", bound=Signer)


class Secrets:
    def __init__(self, referring: Settings, referenced: ReferencedSecrets, settings: Settings) -> None:
        self.settings = settings
        """With the secrets that they referred to."""
        self._referring = referring
        self._referenced = referenced
        self.read = referenced.read

    def follow(self, signer: S) -> S:
        """The signer, which from now on signs with the newest callback keys."""

        def use_newest() -> None:
            try:
                signer.use(callback_keys(self._referenced.resolved(self._referring)))
            except SettingsError as error:
                log.error("callback keys of Key Vault are unusable, the previous ones stay in force: %s", error)

        self._referenced.on_change(use_newest)
        return signer

    def api_keys(self) -> KeySource | None:
        """Where the keys are, if LUCIUS_API_KEYS_FILE is a reference."""
        text = self._referring.api_keys_file
        reference = read_reference(text)
        return None if reference is None else KeySecret(str(reference), lambda: self._referenced.known(text))

    def oidc_client_secret(self) -> str:
        """The newest one."""
        return self._referenced.known(self._referring.oidc_client_secret)

    def checks(self) -> list[Check]:
        if not any(True for _ in references_of(self._referring)):
            return []
        return [Check(name="secrets", look=self._referenced.health, is_vital=False)]


@asynccontextmanager
async def open_secrets(settings: Settings, identity: AzureIdentity) -> AsyncIterator[Secrets]:
    """Raises `SettingsError` if a secret that a setting refers to cannot be read."""
    vault = KeyVault(identity)
    referenced = ReferencedSecrets(vault, _hide)
    try:
        resolved = await referenced.resolve(settings)
        refreshing = every(settings.secrets_refresh_seconds, "secrets", referenced.refresh, LogObserver())
        try:
            yield Secrets(settings, referenced, resolved)
        finally:
            refreshing.cancel()
            await asyncio.wait([refreshing])
    finally:
        await vault.close()


def _hide(place: str, secret: str) -> None:
    if place == API_KEYS_FILE:
        return  # It contains digests of keys, and names that logs may show.
    parts = re.split(r"[\s,]+", secret)
    hide_in_logs({*parts, *(part.partition(":")[2] for part in parts)})
