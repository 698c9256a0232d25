"""The registry as a folder of YAML files: `protocols/*.yaml`, `tenants/*.yaml` and `globals.yaml`.

The folder is read and takes effect as a whole. If one file is broken, the previous state stays in force, and the file
is named with its line in the log, on `/readyz` and to operators until it is fixed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from lucius.domain.protocol import PolicyOverride, Protocol
from lucius.domain.refs import DEFAULT_SCHEMES, RefPolicy
from lucius.ports.registry import Globals, RegistrySnapshot, Tenant
from lucius.registries.documents import DocumentFault, read_globals, read_protocol, read_tenant
from lucius.registries.limits import checked_policy, count_faults, seconds_faults
from lucius.yaml_text import YamlFault, YamlText, read_yaml

SHIPPED = Path(__file__).parent / "shipped"
FILES_MAX = 20_000

log = logging.getLogger("lucius.registry")


class Problem(Struct, frozen=True):
    """Something in the folder that cannot be used, and where it is."""

    file: str
    line: int
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.detail}"


class RegistryError(Exception):
    """A registry that cannot take effect."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Overrides(Struct, frozen=True, kw_only=True):
    """Settings from the environment, which override `globals.yaml`. None means the file's."""

    policy: PolicyOverride = PolicyOverride()
    max_inflight: int | None = None
    max_inflight_per_tenant: int | None = None
    job_deadline_seconds: float | None = None
    unknown_tenants_allowed: bool | None = None


class FileRegistry:
    """Raises `RegistryError` if the folder cannot be used when it is first read. `folder=None` is the included
    registry."""

    def __init__(
        self, folder: Path | None = None, overrides: Overrides | None = None, *, file_scheme_allowed: bool = False
    ) -> None:
        self._folder = folder or SHIPPED
        self._overrides = overrides or Overrides()
        self._schemes = (*DEFAULT_SCHEMES, "file") if file_scheme_allowed else DEFAULT_SCHEMES
        _check_overrides(self._overrides)
        self._fingerprint = self._stat()
        self._snapshot, problems = self._read()
        if problems:
            raise RegistryError(problems)
        self._problems: tuple[Problem, ...] = ()

    def snapshot(self) -> RegistrySnapshot:
        return self._snapshot

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the folder's content is not in force; empty if it is."""
        return self._problems

    def check(self) -> tuple[Problem, ...]:
        """Read the folder as it is now, and return its faults. Changes nothing."""
        return self._read()[1]

    def reload(self) -> bool:
        """Read the folder again if a file in it changed; returns whether the registry changed."""
        fingerprint = self._stat()
        if fingerprint == self._fingerprint:
            return False
        snapshot, problems = self._read()
        self._fingerprint = fingerprint
        self._problems = problems
        if problems:
            for problem in problems:
                log.error("registry not reloaded: %s", problem)
            return False
        if snapshot.version == self._snapshot.version:
            return False
        self._snapshot = snapshot
        log.info("registry reloaded: version %s, %d protocols", snapshot.version, len(snapshot.protocols))
        return True

    async def watch(self, interval_seconds: float) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                await asyncio.to_thread(self.reload)
            except Exception:
                log.exception("the registry folder could not be read")

    def _files(self) -> Iterator[Path]:
        yield self._folder / "globals.yaml"
        for kind in ("protocols", "tenants"):
            found = (self._folder / kind).glob("*.y*ml")
            yield from sorted(path for path in found if not path.name.startswith("."))

    def _stat(self) -> tuple[tuple[str, int, int, int, int], ...]:
        """Changes with every write, rename and changed link, so that unchanged files need not be read."""
        found = []
        for path in self._files():
            try:
                stat = path.stat()
            except OSError:
                continue
            found.append((str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        return tuple(found)

    def _read(self) -> tuple[RegistrySnapshot, tuple[Problem, ...]]:
        reading = _Reading(self._folder, RefPolicy(schemes=self._schemes))
        reading.read(list(self._files()))
        settings = _overridden(reading.settings, self._overrides)
        protocols, request_types = reading.by_request_type()
        content = (
            protocols,
            {name: protocol.id for name, protocol in request_types.items()},
            reading.tenants,
            settings,
        )
        version = sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]
        snapshot = RegistrySnapshot(version, protocols, request_types, reading.tenants, settings)
        return snapshot, tuple(reading.problems)


class _Reading:
    """One pass over the folder, which collects its content and all faults."""

    def __init__(self, folder: Path, refs: RefPolicy) -> None:
        self._folder = folder
        self._refs = refs
        self._protocols: dict[tuple[str, int], tuple[Protocol, str, YamlText]] = {}
        self.tenants: dict[str, Tenant] = {}
        self.settings = Globals(refs=refs)
        self.problems: list[Problem] = []

    def read(self, paths: list[Path]) -> None:
        if len(paths) > FILES_MAX:
            self._add(str(self._folder), 1, f"there are {len(paths)} files; at most {FILES_MAX} are read")
            return
        for path in paths:
            name = path.relative_to(self._folder).as_posix()
            if path.suffix != ".yaml":
                self._add(name, 1, "this file is not read; its name must end in .yaml")
            elif name != "globals.yaml" or path.exists():
                self._read_file(path, name)
        if not self._protocols and not self.problems:
            self._add(f"{self._folder.name}/protocols", 1, "there is no protocol here, so no command could be accepted")

    def _read_file(self, path: Path, name: str) -> None:
        try:
            text = read_yaml(path.read_bytes())
        except OSError as error:
            self._add(name, 1, f"the file cannot be read: {error.strerror}")
            return
        except YamlFault as fault:
            self._add(name, fault.line, fault.detail)
            return
        try:
            if name == "globals.yaml":
                self.settings = read_globals(text.value, self._refs)
            elif name.startswith("protocols/"):
                self._take_protocol(read_protocol(text.value), name, text)
            else:
                self._take_tenant(read_tenant(text.value, self.settings.refs), name, text)
        except DocumentFault as faults:
            for pointer, detail in faults.faults:
                self._add(name, text.line_of(pointer), detail)

    def _take_protocol(self, protocol: Protocol, name: str, text: YamlText) -> None:
        key = (protocol.id, protocol.version)
        if key in self._protocols:
            other = self._protocols[key][1]
            self._add(name, text.line_of("/id"), f"version {protocol.version} of {protocol.id} is in {other} too")
            return
        self._protocols[key] = (protocol, name, text)

    def _take_tenant(self, tenant: Tenant, name: str, text: YamlText) -> None:
        if tenant.id in self.tenants:
            self._add(name, text.line_of("/id"), f"another file already defines the tenant {tenant.id}")
            return
        self.tenants[tenant.id] = tenant

    def by_request_type(self) -> tuple[dict[str, Protocol], dict[str, Protocol]]:
        """The newest version of each protocol, by id and by request type. Two protocols with the same type are a
        fault."""
        protocols: dict[str, Protocol] = {}
        request_types: dict[str, Protocol] = {}
        for key in sorted(self._protocols):
            protocols[key[0]] = self._protocols[key][0]
        for protocol in protocols.values():
            _, name, text = self._protocols[protocol.id, protocol.version]
            for index, request_type in enumerate(protocol.request_types):
                if request_type in request_types:
                    detail = f"the request type {request_type} is already served by {request_types[request_type].id}"
                    self._add(name, text.line_of(f"/request_types/{index}"), detail)
                request_types.setdefault(request_type, protocol)
        return protocols, request_types

    def _add(self, file: str, line: int, detail: str) -> None:
        self.problems.append(Problem(file, line, detail))


def _overridden(settings: Globals, overrides: Overrides) -> Globals:
    def stated(of: Struct) -> dict[str, Any]:
        return {name: value for name, value in structs.asdict(of).items() if value is not None}

    policy = structs.replace(settings.policy, **stated(overrides.policy))
    return structs.replace(settings, **{**stated(overrides), "policy": policy})


def _check_overrides(overrides: Overrides) -> None:
    """The same limits apply to the environment as to the files."""
    values = {name: value for name, value in structs.asdict(overrides).items() if value is not None}
    policy = {name: value for name, value in structs.asdict(overrides.policy).items() if value is not None}
    faults = checked_policy(policy, "") + seconds_faults(values, "job_deadline_seconds", "")
    for name in ("max_inflight", "max_inflight_per_tenant"):
        faults += count_faults(values, name, "")
    if faults:
        raise RegistryError(tuple(Problem(f"LUCIUS_{place[1:].upper()}", 1, detail) for place, detail in faults))
