"""A pull: a folder becomes what the store holds. A file that was changed in the folder is in the way.

A file counts as unchanged if its content was once the store's: then it is merely old. App Configuration's revisions
tell, so nothing is recorded in the folder.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from lucius.registries.appconfig.keys import key_of
from lucius.registries.appconfig.reading import is_blob, reference_in
from lucius.registries.appconfig.store import AppConfigStore, Setting
from lucius.registries.appconfig.stored import Stored
from lucius.registries.contents import Rules
from lucius.registries.files import read_folder
from lucius.registries.folders import file_name, write_file

REVISIONS_MAX = 200
"""Older content of a file is looked for in so many revisions of its key."""


class FileChange(Struct, frozen=True):
    identity: str
    path: str
    """In the folder."""
    before: bytes | None
    after: bytes | None
    """None removes the file."""
    obstacle: str = ""
    """Why this would lose somebody's work, if it would."""


async def plan_pull(store: AppConfigStore, stored: Stored, folder: Path, rules: Rules) -> list[FileChange]:
    """Raises `StoreFailed`, and ValueError if two documents would be in one file."""
    local = read_folder(folder, rules).documents
    places = {identity: document.place for identity, document in local.items()}
    foreign = set(stored.foreign_keys)
    wanted = {one: content for one, content in stored.documents.items() if key_of(one) not in foreign}
    paths: dict[str, str] = {}
    changes: list[FileChange] = []
    for identity in sorted({*wanted, *places}):
        path = places.get(identity) or file_name(identity)
        if paths.setdefault(path, identity) != identity:
            raise ValueError(f"{paths[path]} and {identity} would both be in {path}: rename one of the files")
        before = _content(folder / path)
        after = wanted.get(identity)
        if before != after:
            obstacle = "" if before is None else await _obstacle(store, identity, before, after)
            changes.append(FileChange(identity, path, before, after, obstacle))
    return changes


async def _obstacle(store: AppConfigStore, identity: str, before: bytes, after: bytes | None) -> str:
    if any(_is_content(revision, before) for revision in await store.revisions(key_of(identity), REVISIONS_MAX)):
        return ""
    return "it is not in the store" if after is None else "it was changed here"


def _is_content(revision: Setting, content: bytes) -> bool:
    if not is_blob(revision):
        return revision.value.encode() == content
    reference = reference_in(revision)
    return reference is not None and reference.sha256 == sha256(content).hexdigest()


def apply_pull(folder: Path, changes: list[FileChange]) -> None:
    """New content first, so that nothing is missing in between. Raises OSError, and ValueError for a file that was
    changed since."""
    for change in changes:
        if _content(folder / change.path) != change.before:
            raise ValueError(f"{change.path} was changed meanwhile: nothing was written")
    for change in changes:
        if change.after is not None:
            write_file(folder / change.path, change.after)
    for change in changes:
        if change.after is None:
            (folder / change.path).unlink(missing_ok=True)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
