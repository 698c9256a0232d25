"""Key-values of one label in App Configuration, by Azure's plain client.

Every call is made once and within a deadline: callers know better than the SDK when to try again, what a `Retry-After`
means to them, and what a write whose answer was lost has done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from msgspec import Struct

from lucius.azure.credential import AzureIdentity
from lucius.registries.appconfig.keys import PREFIX, SENTINEL
from lucius.registries.appconfig.options import AppConfigOptions
from lucius.registries.appconfig.sentinel import Sentinel, SentinelText, read_sentinel

CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
SETTINGS_MAX = 20_001
NO_LABEL = "\0"

# The SDK logs every request on its own; a failed one is told in the registry's words.
logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)


class StoreFailed(Exception):
    """The store does not answer as it should; the text has nothing secret."""

    def __init__(self, detail: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class StoreConflict(StoreFailed):
    """Somebody else has changed the key."""


class Setting(Struct, frozen=True):
    """A key-value, or an older one of a key."""

    key: str
    value: str
    etag: str = ""
    content_type: str = ""
    modified_at: str = ""


class AppConfigStore:
    """An async context manager. Every call raises `StoreFailed`."""

    def __init__(self, options: AppConfigOptions, identity: AzureIdentity | None = None) -> None:
        """`identity`: who asks, unless a connection string says so."""
        self.options = options
        self._identity = identity or AzureIdentity()
        self._client: Any = None

    async def __aenter__(self) -> AppConfigStore:
        from azure.appconfiguration.aio import AzureAppConfigurationClient

        limits = {"retry_total": 0, "connection_timeout": CONNECT_SECONDS, "read_timeout": CALL_SECONDS}
        if self.options.connection:
            connection = self.options.connection.rstrip(";")
            self._client = AzureAppConfigurationClient.from_connection_string(connection, **limits)
        else:
            self._client = AzureAppConfigurationClient(self.options.endpoint, self._identity.credential(), **limits)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def sentinel(self, known_etag: str = "") -> Sentinel | None:
        """The sentinel; None if it still has the known ETag. One request."""
        from azure.core import MatchConditions
        from azure.core.exceptions import ResourceNotFoundError

        condition = MatchConditions.IfModified if known_etag else MatchConditions.Unconditionally
        async with self._call(SENTINEL):
            try:
                found = await self._client.get_configuration_setting(
                    SENTINEL, self.options.label or None, known_etag or None, condition
                )
            except ResourceNotFoundError:
                return Sentinel("", SentinelText())
        return None if found is None else Sentinel(str(found.etag), read_sentinel(found.value))

    async def find(self, key: str) -> Setting | None:
        from azure.core.exceptions import ResourceNotFoundError

        async with self._call(key):
            try:
                return _setting(await self._client.get_configuration_setting(key, self.options.label or None))
            except ResourceNotFoundError:
                return None

    async def read_all(self) -> dict[str, Setting]:
        """Every key of the registry but the sentinel: a request for each hundred."""
        found: dict[str, Setting] = {}
        listing = self._client.list_configuration_settings(key_filter=f"{PREFIX}*", label_filter=self._label_filter)
        pages = listing.by_page()
        while True:
            async with self._call(f"{PREFIX}*"):
                page = await anext(pages, None)
                if page is None:
                    break
                found |= {one.key: _setting(one) async for one in page}
            if len(found) > SETTINGS_MAX:
                raise StoreFailed(f"{self._place(PREFIX + '*')} has more than {SETTINGS_MAX} keys")
        found.pop(SENTINEL, None)
        return found

    async def write(self, setting: Setting) -> str:
        """The new ETag. Nothing may have the key if the setting has no ETag; else what has it must have that one.

        A refused or unanswered write that turns out to be there is ours: an earlier try of it arrived.
        """
        from azure.appconfiguration import ConfigurationSetting
        from azure.core import MatchConditions

        wanted = ConfigurationSetting(
            key=setting.key,
            value=setting.value,
            label=self.options.label or None,
            content_type=setting.content_type,
        )
        condition = MatchConditions.IfNotModified if setting.etag else MatchConditions.IfMissing
        try:
            async with self._call(setting.key):
                written = await self._client.set_configuration_setting(wanted, condition, etag=setting.etag or None)
                return str(written.etag)
        except StoreFailed:
            found = await self.find(setting.key)
            if found is None or (found.value, found.content_type) != (setting.value, setting.content_type):
                raise
            return found.etag

    async def delete(self, setting: Setting) -> None:
        from azure.core import MatchConditions

        try:
            async with self._call(setting.key):
                await self._client.delete_configuration_setting(
                    setting.key,
                    self.options.label or None,
                    etag=setting.etag,
                    match_condition=MatchConditions.IfNotModified,
                )
        except StoreFailed:
            if await self.find(setting.key) is not None:
                raise

    async def revisions(self, key: str, count_max: int) -> list[Setting]:
        """What a key was set to, the newest first."""
        found: list[Setting] = []
        async with self._call(key):
            async for one in self._client.list_revisions(key, self._label_filter):
                found.append(_setting(one))
                if len(found) >= count_max:
                    break
        return found

    @property
    def _label_filter(self) -> str:
        return self.options.label or NO_LABEL

    def _place(self, key: str) -> str:
        return f"{key} in {self.options.endpoint}"

    @asynccontextmanager
    async def _call(self, key: str) -> AsyncIterator[None]:
        """Within a deadline; failures in words that name the key and nothing secret."""
        from azure.core.exceptions import AzureError

        try:
            async with asyncio.timeout(CALL_SECONDS):
                yield
        except TimeoutError as error:
            raise StoreFailed(f"{self._place(key)}: no answer within {CALL_SECONDS:g} s") from error
        except AzureError as error:
            raise self._failure(key, error) from error

    def _failure(self, key: str, error: Any) -> StoreFailed:
        status, place = getattr(error, "status_code", None), self._place(key)
        if status in (401, 403):
            return StoreFailed(f"{place}: access is refused ({status}); check the credential and its role")
        if status == 429:
            seconds = _retry_after(error)
            return StoreFailed(f"{place}: the store has no requests left (429); next try in {seconds:g} s", seconds)
        if status == 412:
            return StoreConflict(f"{place}: somebody else has changed it meanwhile")
        if status == 409:
            return StoreFailed(f"{place}: the key is locked in App Configuration")
        if status is not None:
            return StoreFailed(f"{place}: the store answers with status {status}")
        return StoreFailed(f"{place}: unreachable ({type(error).__name__})")


def _setting(found: Any) -> Setting:
    modified_at = found.last_modified.isoformat(timespec="seconds") if found.last_modified else ""
    return Setting(found.key, found.value or "", str(found.etag), found.content_type or "", modified_at)


def _retry_after(error: Any) -> float:
    try:
        return max(0.0, float(error.response.headers.get("Retry-After", "0")))
    except (AttributeError, ValueError):
        return 0.0
