"""The folders that `file` refs may point to, for each tenant.

Clients choose refs freely, so they are restricted to roots: `DATA/files`, the roots of `LUCIUS_PLATFORM_FILE_ROOTS`,
and for reading the samples that ship with LUCIUS. Paths are compared as text. That is enough because `safe_files` opens
them without following links.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lucius.platform.errors import NonRetryable, ServiceUnusable

SETTING = "LUCIUS_PLATFORM_FILE_ROOTS"
SHARED, READONLY = "shared:", "readonly:"
FILES_FOLDER = "files"
SAMPLES = Path(__file__).resolve().parents[1] / "reference" / "samples"
NAME_BYTES_MAX = 200
"""Below the 255 bytes that file systems allow for a name."""


def tenant_folder(tenant_id: str) -> str:
    """The name of a tenant's folder, in every root and in the workspace.

    It is the tenant's id if every file system, and Azure Blob, keeps that distinct from all other ids. A long id, one
    that begins or ends with a dot, or one that a file system might equate with another (`é` has two encodings) is
    replaced by its digest.
    """
    is_folded = unicodedata.normalize("NFKC", tenant_id).casefold() == tenant_id
    is_one_name = tenant_id.isprintable() and not {"/", "\\"} & {*tenant_id} and tenant_id[:1] not in ("", ".", "~")
    name = tenant_id.encode("utf-8", "surrogatepass")
    if is_folded and is_one_name and not tenant_id.endswith(".") and len(name) <= NAME_BYTES_MAX:
        return tenant_id
    return f"~{hashlib.sha256(name).hexdigest()}"


class Place(NamedTuple):
    """A file: a trusted folder, and the names from there on, which are not checked yet."""

    root: Path
    names: tuple[str, ...]
    is_private: bool = False
    """Whether the file, and folders created for it, are accessible only to their owner."""
    hard_links_allowed: bool = True


@dataclass(frozen=True)
class FileRoot:
    path: Path
    shared: bool = False
    """All tenants share the whole root; otherwise each has its own folder in it."""
    readonly: bool = False
    is_private: bool = False

    def names(self, tenant_id: str) -> tuple[str, ...]:
        """The names from the root to the tenant's part of it."""
        return () if self.shared else (tenant_folder(tenant_id),)

    def folder(self, tenant_id: str) -> Path:
        return self.path.joinpath(*self.names(tenant_id))

    def place(self, tenant_id: str, path: Path) -> Place | None:
        folder = self.folder(tenant_id)
        if not path.is_relative_to(folder):
            return None
        names = (*self.names(tenant_id), *path.relative_to(folder).parts)
        return Place(self.path, names, self.is_private, hard_links_allowed=self.readonly)


@dataclass(frozen=True)
class FileRoots:
    roots: tuple[FileRoot, ...] = ()
    private: Path | None = None
    """The data folder: everything created under it is accessible only to its owner."""

    def readable(self, tenant_id: str) -> tuple[Path, ...]:
        return tuple(root.folder(tenant_id) for root in self.roots)

    def writable(self, tenant_id: str) -> tuple[Path, ...]:
        return tuple(root.folder(tenant_id) for root in self.roots if not root.readonly)

    def place_to_read(self, tenant_id: str, path: Path, what: str, workspace_root: Path | None) -> Place:
        """Raises `NonRetryable` for a path that the tenant may not read, whatever is there.

        Under `workspace_root` other tenants' jobs have their files, even if a shared root contains it.
        """
        return self._place(self.roots, tenant_id, path, what, workspace_root, "read")

    def place_to_write(self, tenant_id: str, path: Path, what: str, workspace_root: Path | None) -> Place:
        roots = [root for root in self.roots if not root.readonly]
        return self._place(roots, tenant_id, path, what, workspace_root, "written")

    def is_private(self, path: Path) -> bool:
        return self.private is not None and path.is_relative_to(self.private)

    def _place(
        self, roots: Sequence[FileRoot], tenant_id: str, path: Path, what: str, workspace_root: Path | None, verb: str
    ) -> Place:
        for root in roots:
            place = root.place(tenant_id, path)
            if place is not None and not (workspace_root and path.is_relative_to(workspace_root)):
                return place
        folders = ", ".join(f"{root.folder(tenant_id)}/" for root in roots) or "no folder"
        raise NonRetryable("PATH_FORBIDDEN", f"the {what} may not be {verb} there; allowed for this tenant: {folders}")


def read_file_roots(setting: str, data: str, protected: Iterable[str | Path] = ()) -> FileRoots:
    """The roots of a service or server with this data folder.

    No configured root may be in, or contain, the data folder or another `protected` path. Raises `ServiceUnusable`.
    """
    data_folder = Path(data)
    own = [FileRoot(path, is_private=True) for path in _spellings(data_folder / FILES_FOLDER)]
    reserved = [one.resolve() for one in (data_folder, *map(Path, protected))]
    configured: list[FileRoot] = []
    for entry in (one.strip() for one in setting.split(",")):
        if entry:
            root = _read_root(entry, reserved)
            reserved.append(root.path.resolve())
            configured += [FileRoot(path, root.shared, root.readonly) for path in _spellings(root.path)]
    samples = FileRoot(SAMPLES, shared=True, readonly=True)
    return FileRoots((*own, *configured, samples), private=data_folder.resolve())


def without_marks(entry: str) -> tuple[str, set[str]]:
    """An entry of a setting without its marks, and these."""
    marks = set()
    while mark := next((one for one in (SHARED, READONLY) if entry.startswith(one)), None):
        marks.add(mark)
        entry = entry.removeprefix(mark)
    return entry, marks


def _read_root(entry: str, reserved: Iterable[Path]) -> FileRoot:
    text, marks = without_marks(entry)
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        raise ServiceUnusable(
            f"{SETTING}: {entry!r} is not an absolute path, optionally with the prefix {SHARED} or {READONLY}"
        )
    if not path.is_dir():
        raise ServiceUnusable(f"{SETTING}: the folder {text!r} does not exist")
    real = path.resolve()
    for one in reserved:
        if real.is_relative_to(one) or one.is_relative_to(real):
            raise ServiceUnusable(
                f"{SETTING}: {text!r} and {str(one)!r} overlap; a root must be separate from other roots and "
                "from folders of LUCIUS"
            )
    return FileRoot(path, SHARED in marks, READONLY in marks)


def _spellings(folder: Path) -> Iterator[Path]:
    """A folder's path as given and with links resolved: refs may use either."""
    yield from dict.fromkeys((Path(os.path.abspath(folder)), folder.resolve()))
