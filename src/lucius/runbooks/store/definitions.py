"""Runbooks by name and version, cached, because a version never changes."""

from __future__ import annotations

from collections import OrderedDict

from lucius.ports.database import Script
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.store import freezes, runbooks

KEPT_MAX = 256


class RunbookMissing(Exception):
    """A row names a version that does not exist."""


class Definitions:
    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, int], Runbook] = OrderedDict()

    def get(self, name: str, version: int) -> Script[Runbook]:
        key = (name, version)
        found = self._cache.get(key)
        if found is None:
            text = yield from runbooks.text(name, version)
            if text is None:
                raise RunbookMissing(f"runbook {name} has no version {version}")
            found = read_runbook(text.encode(), of_files=(yield from freezes.of_version(name, version)))
            self.keep(version, found)
        return found

    def keep(self, version: int, runbook: Runbook) -> None:
        """Caches a runbook that was just parsed and published, so that no transaction waits for its parser again."""
        self._cache[runbook.name, version] = runbook
        if len(self._cache) > KEPT_MAX:
            self._cache.popitem(last=False)
