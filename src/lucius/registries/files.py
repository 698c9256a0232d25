"""The registry as a folder of YAML files: `protocols/*.yaml`, `tenants/*.yaml` and `globals.yaml`.

The folder is read and takes effect as a whole. If one file is broken, the previous state stays in force, and the file
is named with its line in the log, on `/readyz` and to operators until it is fixed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from lucius.ports.registry import Problem, RegistrySnapshot
from lucius.registries.contents import DOCUMENTS_MAX, Contents, Document, Kind, Rules, read_contents
from lucius.registries.overrides import Overrides
from lucius.registries.problems import RegistryError
from lucius.registries.versions import KnownVersions

SHIPPED = Path(__file__).parent / "shipped"
GLOBALS_FILE = "globals.yaml"

log = logging.getLogger("lucius.registry")


class FileRegistry:
    """Raises `RegistryError` if the folder cannot be used when it is first read. `folder=None` is the included
    registry."""

    def __init__(
        self, folder: Path | None = None, overrides: Overrides | None = None, *, file_scheme_allowed: bool = False
    ) -> None:
        self._folder = folder or SHIPPED
        self._rules = Rules(overrides or Overrides(), file_scheme_allowed)
        self._rules.overrides.check()
        self._fingerprint = self._stat()
        contents = read_folder(self._folder, self._rules)
        if contents.problems:
            raise RegistryError(contents.problems)
        self._snapshot = contents.snapshot
        self._versions = KnownVersions()
        self._versions.add(contents)
        self._problems: tuple[Problem, ...] = ()
        self._agreed_at = time.monotonic()

    def snapshot(self) -> RegistrySnapshot:
        return self._snapshot

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._problems

    @property
    def stale_seconds(self) -> float:
        return time.monotonic() - self._agreed_at

    def check(self) -> tuple[Problem, ...]:
        """Read the folder as it is now, and return its faults. Changes nothing."""
        return read_folder(self._folder, self._rules).problems

    def reload(self) -> bool:
        """Read the folder again if a file in it changed; returns whether the registry changed."""
        fingerprint = self._stat()
        if fingerprint == self._fingerprint:
            self._note_agreement()
            return False
        contents = read_folder(self._folder, self._rules)
        self._fingerprint = fingerprint
        self._problems = (*contents.problems, *self._versions.changed_in(contents))
        for problem in self._problems:
            log.error("registry not reloaded: %s", problem)
        if self._problems:
            return False
        self._versions.add(contents)
        self._note_agreement()
        snapshot = contents.snapshot
        if snapshot.version == self._snapshot.version:
            return False
        self._snapshot = snapshot
        log.info("registry reloaded: version %s, %d protocols", snapshot.version, len(snapshot.protocols))
        return True

    async def watch(self, interval_seconds: float) -> None:
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                await asyncio.to_thread(self.reload)
            except Exception:
                log.exception("the registry folder could not be read")

    def _note_agreement(self) -> None:
        if not self._problems:
            self._agreed_at = time.monotonic()

    def _stat(self) -> tuple[tuple[str, int, int, int, int], ...]:
        """Changes with every write, rename and changed link, so that unchanged files need not be read."""
        found = []
        for path in _files(self._folder):
            try:
                stat = path.stat()
            except OSError:
                continue
            found.append((str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        return tuple(found)


def read_folder(folder: Path, rules: Rules) -> Contents:
    """With every fault, in the order of the files."""
    documents, problems = folder_documents(folder)
    return read_contents(documents, rules, f"{folder.name}/{Kind.PROTOCOL}", problems)


def folder_documents(folder: Path) -> tuple[list[Document], list[Problem]]:
    """The files as they are, and which of them cannot be read."""
    documents: list[Document] = []
    problems: list[Problem] = []
    paths = list(_files(folder))
    if len(paths) > DOCUMENTS_MAX:
        detail = f"there are {len(paths)} files; at most {DOCUMENTS_MAX} are read"
        return [], [Problem(str(folder), 1, detail)]
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path.suffix != ".yaml":
            problems.append(Problem(name, 1, "this file is not read; its name must end in .yaml"))
        elif name != GLOBALS_FILE or path.exists():
            try:
                content = path.read_bytes()
            except OSError as error:
                problems.append(Problem(name, 1, f"the file cannot be read: {error.strerror}"))
            else:
                documents.append(Document(Kind(name.partition("/")[0].removesuffix(".yaml")), name, content))
    return documents, problems


def _files(folder: Path) -> Iterator[Path]:
    yield folder / GLOBALS_FILE
    for kind in (Kind.PROTOCOL, Kind.TENANT):
        found = (folder / kind).glob("*.y*ml")
        yield from sorted(path for path in found if not path.name.startswith("."))
