"""Values that are references to Key Vault: read at the start, read again from time to time, kept over an outage.

The settings `REFERABLE` may be references, and so may the secrets of tenants' webhooks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec.structs import replace

from lucius.azure.key_vault import SCHEME, BadReference, SecretReference, SecretUnreadable, read_reference
from lucius.ports.readiness import NotReady
from lucius.settings import Settings, SettingsError

log = logging.getLogger("lucius.secrets")

REFERENCES_MAX = 5_000
READS_AT_ONCE = 8


class Vault(Protocol):
    async def get(self, reference: SecretReference) -> str:
        """Raises `SecretUnreadable`."""
        ...

    async def close(self) -> None: ...


class ReferencedSecrets:
    def __init__(self, vault: Vault, learned: Callable[[str, str], None] = lambda place, secret: None) -> None:
        """`learned` is told what names a secret, and the secret, so that no log shows it."""
        self._vault = vault
        self._learned = learned
        self._values: dict[SecretReference, str] = {}
        self._places: dict[SecretReference, str] = {}
        """What names each: a setting, a tenant."""
        self._problems: dict[SecretReference, str] = {}
        self._listeners: list[Callable[[], None]] = []

    async def resolve(self, settings: Settings) -> Settings:
        """The settings with the secrets that they refer to; the file of API keys stays a reference. Raises
        `SettingsError`."""
        for variable, text in references_of(settings):
            try:
                await self.read(variable, text)
            except (BadReference, SecretUnreadable) as error:
                raise SettingsError(f"{variable}: {error}") from error
        return self.resolved(settings)

    def resolved(self, settings: Settings) -> Settings:
        """The same with what is known now."""
        keys = [part for key in settings.callback_keys for part in self._callback_keys(key)]
        return replace(
            settings,
            api_key=self.known(settings.api_key),
            callback_keys=tuple(keys),
            oidc_client_secret=self.known(settings.oidc_client_secret),
            smtp_password=self.known(settings.smtp_password),
        )

    def known(self, text: str) -> str:
        """The text, or the secret that it refers to and that was read before."""
        reference = read_reference(text)
        return text if reference is None else self._values[reference]

    async def read(self, place: str, text: str) -> str:
        """The text, or the secret that it refers to. Raises `BadReference` and `SecretUnreadable`."""
        reference = read_reference(text)
        if reference is None:
            return text
        if reference not in self._values:
            if len(self._values) >= REFERENCES_MAX:
                raise SecretUnreadable(f"more than {REFERENCES_MAX} secrets are referred to")
            value = await self._vault.get(reference)
            self._places[reference] = place
            self._keep(reference, value)
        return self._values[reference]

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called after a secret has another value."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Read again whatever names no version. A secret that cannot be read stays as it was."""
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def look(reference: SecretReference) -> bool:
            async with slots:
                try:
                    value = await self._vault.get(reference)
                except SecretUnreadable as error:
                    self._tell(reference, str(error))
                    return False
            self._problems.pop(reference, None)
            is_new = self._values[reference] != value
            self._keep(reference, value)
            return is_new

        newest = [reference for reference in self._values if not reference.version]
        if any(await asyncio.gather(*map(look, newest))):
            log.info("secrets of Key Vault have changed and are in force")
            for listener in self._listeners:
                listener()

    async def health(self) -> str:
        if self._problems:
            raise NotReady(f"not read again, the last good ones are in force: {'; '.join(self._problems.values())}")
        return f"{len(self._values)} of Key Vault in force" if self._values else "none of Key Vault"

    def _callback_keys(self, key: str) -> Iterator[str]:
        """`keyvault://…` is a secret with one or several `id:secret`; of `id:keyvault://…`, the secret alone."""
        name, separator, secret = key.partition(":")
        if separator and secret.startswith(SCHEME):
            yield f"{name}:{self.known(secret).strip()}"
        else:
            yield from (part.strip() for part in self.known(key).split(","))

    def _keep(self, reference: SecretReference, value: str) -> None:
        self._values[reference] = value
        self._learned(self._places[reference], value)

    def _tell(self, reference: SecretReference, problem: str) -> None:
        text = f"{self._places[reference]}: {problem}"
        if self._problems.get(reference) != text:
            log.warning("a secret was not read again, the last good one stays in force: %s", text)
        self._problems[reference] = text


def references_of(settings: Settings) -> Iterator[tuple[str, str]]:
    """Variables of settings, with the reference that each contains."""
    for key in settings.callback_keys:
        secret = key.partition(":")[2]
        text = secret if secret.startswith(SCHEME) else key
        if text.startswith(SCHEME):
            yield "LUCIUS_CALLBACK_KEYS", text
    for variable, text in (
        ("LUCIUS_API_KEY", settings.api_key),
        ("LUCIUS_API_KEYS_FILE", settings.api_keys_file),
        ("LUCIUS_OIDC_CLIENT_SECRET", settings.oidc_client_secret),
        ("LUCIUS_SMTP_PASSWORD", settings.smtp_password),
    ):
        if text.startswith(SCHEME):
            yield variable, text
