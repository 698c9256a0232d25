"""App Configuration as a source of registries: keys are set as people do by hand, and the sentinel last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from lucius.ports.registry import Registry
from lucius.registries.appconfig import AppConfigOptions, AppConfigRegistry, AppConfigStore
from lucius.registries.appconfig.cache import RegistryCache
from lucius.registries.appconfig.keys import SENTINEL, key_of
from lucius.registries.appconfig.reading import LargeDocuments
from lucius.registries.contents import Rules
from lucius.registries.overrides import Overrides
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.registry_suite import RegistrySource

_numbers = count(1)


class AppConfigSource(RegistrySource):
    def __init__(
        self, server: AppConfigServer, cache: Path, label: str = "", large: LargeDocuments | None = None
    ) -> None:
        self.server = server
        self.cache = cache
        self._label = label
        self._large = large

    @property
    def options(self) -> AppConfigOptions:
        return AppConfigOptions(address="appconfig://", connection=self.server.connection_string, label=self._label)

    async def put(self, identity: str, text: str) -> None:
        self.server.put(key_of(identity), text, self._label or None)

    async def remove(self, identity: str) -> None:
        self.server.key_values.delete(key_of(identity), self._label or None)

    async def publish(self) -> None:
        self.server.put(SENTINEL, f"change {next(_numbers)}", self._label or None)

    @asynccontextmanager
    async def open(self, overrides: Overrides | None = None) -> AsyncIterator[Registry]:
        async with AppConfigStore(self.options) as store:
            cache = RegistryCache(self.cache, f"{self.options.endpoint} {self._label}")
            registry = AppConfigRegistry(store, cache, Rules(overrides or Overrides()), self._large)
            await registry.open()
            yield registry

    async def look(self, registry: Registry) -> None:
        assert isinstance(registry, AppConfigRegistry)
        await registry.refresh()

    def place(self, identity: str) -> str:
        return key_of(identity)
