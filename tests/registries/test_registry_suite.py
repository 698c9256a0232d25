"""The registry suite over a folder and over App Configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.registries.appconfig_source import AppConfigSource

from lucius.ports.registry import Registry
from lucius.registries.files import FileRegistry
from lucius.registries.overrides import Overrides
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.registry_suite import RegistrySource, RegistrySuite


class FolderSource(RegistrySource):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, identity: str, text: str) -> None:
        path = self._folder / self.place(identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}")
        draft.write_text(text)
        draft.replace(path)

    async def remove(self, identity: str) -> None:
        (self._folder / self.place(identity)).unlink()

    async def publish(self) -> None: ...

    @asynccontextmanager
    async def open(self, overrides: Overrides | None = None) -> AsyncIterator[Registry]:
        yield FileRegistry(self._folder, overrides)

    async def look(self, registry: Registry) -> None:
        assert isinstance(registry, FileRegistry)
        registry.reload()

    def place(self, identity: str) -> str:
        kind, _, name = identity.partition(":")
        return f"{kind}/{name.replace(':', '-')}.yaml" if name else f"{kind}.yaml"


class TestFiles(RegistrySuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> RegistrySource:
        return FolderSource(tmp_path)


class TestAppConfig(RegistrySuite):
    @pytest.fixture
    async def source(self, tmp_path: Path) -> AsyncIterator[RegistrySource]:
        async with AppConfigServer() as server:
            yield AppConfigSource(server, tmp_path / "cache.json", label="test")
