"""API keys: one from the settings, any number from a YAML file that may change while LUCIUS runs.

Only digests are kept, and a key is looked up by its digest: how long that takes says nothing about the key. A file that
is broken when LUCIUS starts is refused; one that breaks later is named in the log, and the last good one stays in force.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from lucius.auth.principal import EVERYTHING, ROLES, Principal
from lucius.domain.fields import FieldFault, read_tenant_id
from lucius.domain.routing import normal_form
from lucius.registries.yaml_text import YamlFault, YamlText, read_yaml
from lucius.settings import SettingsError

CHECK_SECONDS = 2.0
KEY_CHARS_MAX = 512
TENANTS_MAX = 1_000

_FIELDS = ("name", "sha256", "tenants", "roles")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?")
_SENDABLE = re.compile(r"[!-~]+")

log = logging.getLogger("lucius.auth")


class KeysFault(Exception):
    """A key file that cannot be used; says which file, which line, and what is wrong there."""

    def __init__(self, file: str, line: int, detail: str) -> None:
        super().__init__(f"{file}:{line}: {detail}")


class ApiKeys:
    """Raises `SettingsError` if the settings or the file cannot be used when they are first read."""

    def __init__(self, key: str, file: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        if key and (len(key) > KEY_CHARS_MAX or not _SENDABLE.fullmatch(key)):
            raise SettingsError(
                f"LUCIUS_API_KEY must have at most {KEY_CHARS_MAX} printable ASCII characters and no space"
            )
        self._own = {sha256(key.encode()).digest(): EVERYTHING} if key else {}
        self._path = Path(file) if file else None
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._stamp: tuple[int, ...] | None = None
        self.generation = 0
        """Grows with every reload, so that what was kept from before can be thrown away."""
        self.problem: str | None = None
        """Why what stands in the file is not what is in force; None if it is."""
        self._principals: dict[bytes, Principal] = dict(self._own)
        if self._path is not None:
            self._stamp = _stamp(self._path)
            try:
                self._principals |= read_keys(self._path)
            except KeysFault as fault:
                raise SettingsError(f"LUCIUS_API_KEYS_FILE: {fault}") from fault

    @property
    def is_empty(self) -> bool:
        return self._path is None and not self._own

    def find(self, key: str) -> Principal | None:
        """Who holds this key, by the newest file that could be read."""
        self.refresh()
        if len(key) > KEY_CHARS_MAX:
            return None
        return self._principals.get(sha256(key.encode("utf-8", "surrogatepass")).digest())

    def refresh(self) -> None:
        """Read the file again if it has changed; looks at it at most every two seconds."""
        if self._path is None:
            return
        now = self._monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            principals = read_keys(self._path)
        except KeysFault as fault:
            self.problem = str(fault)
            log.error("API keys not reloaded, those before stay in force: %s", fault)
            return
        self._principals = self._own | principals
        self.problem = None
        self.generation += 1
        log.info("API keys reloaded: %d in the file", len(principals))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def read_keys(path: Path) -> dict[bytes, Principal]:
    """The principals in a key file, by the digest of their key. Raises `KeysFault`."""
    try:
        text = read_yaml(path.read_bytes())
    except OSError as error:
        raise KeysFault(path.name, 1, f"the file cannot be read: {error.strerror}") from None
    except YamlFault as fault:
        raise KeysFault(path.name, fault.line, fault.detail) from None
    reader = _Reader(path.name, text)
    entries = [] if text.value is None else text.value
    if not isinstance(entries, list):
        raise reader.fault("", "the file must hold a list of keys")
    principals: dict[bytes, Principal] = {}
    names: set[str] = set()
    for index, entry in enumerate(entries):
        digest, principal = reader.entry(f"/{index}", entry)
        if digest in principals:
            raise reader.fault(f"/{index}/sha256", "this key stands twice")
        if principal.name in names:
            raise reader.fault(f"/{index}/name", f"the name {principal.name} stands twice")
        names.add(principal.name)
        principals[digest] = principal
    return principals


class _Reader:
    def __init__(self, file: str, text: YamlText) -> None:
        self._file = file
        self._text = text

    def fault(self, pointer: str, detail: str) -> KeysFault:
        return KeysFault(self._file, self._text.line_of(pointer), detail)

    def entry(self, place: str, entry: Any) -> tuple[bytes, Principal]:
        if not isinstance(entry, dict):
            raise self.fault(place, f"a key is an object with {', '.join(_FIELDS)}")
        for name in entry:
            if name not in _FIELDS:
                raise self.fault(
                    f"{place}/{name}", f"{name[:64]} is not a field of a key; there are {', '.join(_FIELDS)}"
                )
        for name in _FIELDS:
            if name not in entry:
                raise self.fault(place, f"{name} is missing")
        name, digest = entry["name"], entry["sha256"]
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.fault(f"{place}/name", "a name has 1 to 128 printable ASCII characters")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise self.fault(f"{place}/sha256", "sha256 must be the key's SHA-256 in 64 hex digits; quote it")
        return bytes.fromhex(digest), Principal(
            name, self._tenants(f"{place}/tenants", entry["tenants"]), self._roles(f"{place}/roles", entry["roles"])
        )

    def _tenants(self, place: str, value: Any) -> frozenset[str] | None:
        if value == "*":
            return None
        if not isinstance(value, list) or not 1 <= len(value) <= TENANTS_MAX:
            raise self.fault(place, f'tenants must be "*" or a list of 1 to {TENANTS_MAX} tenant ids')
        for index, tenant in enumerate(value):
            try:
                read_tenant_id(tenant)
            except FieldFault as fault:
                raise self.fault(f"{place}/{index}", str(fault)) from None
        return frozenset(map(normal_form, value))

    def _roles(self, place: str, value: Any) -> frozenset[str]:
        if not isinstance(value, list) or not value:
            raise self.fault(place, f"roles must be a list of some of {', '.join(sorted(ROLES))}")
        for index, role in enumerate(value):
            if not isinstance(role, str) or role not in ROLES:
                raise self.fault(
                    f"{place}/{index}", f"{role!r:.64} is not a role; there are {', '.join(sorted(ROLES))}"
                )
        return frozenset(value)
