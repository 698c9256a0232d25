"""What `lucius protocol` does with the configured registry: checks a file against it, and publishes it there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lucius.bootstrap.registry import is_in_appconfig, registry_rules
from lucius.registries.candidate import Candidate, check_candidate
from lucius.registries.contents import Document, Kind
from lucius.registries.files import SHIPPED, folder_documents
from lucius.registries.folders import file_name, write_file
from lucius.roles.registry import RegistryRefused, opened_store, pushed
from lucius.roles.running import run
from lucius.settings import Settings, SettingsError

if TYPE_CHECKING:
    from lucius.registries.appconfig.stored import Stored


def check_protocol(settings: Settings, name: str, content: bytes) -> Candidate:
    """Whether the configured registry would accept this text; `name` is that of its file."""
    if is_in_appconfig(settings):

        async def work() -> Candidate:
            return _check_in_store(settings, await _stored(settings), name, content)

        return run(work(), settings)
    folder = _folder(settings)
    documents, problems = folder_documents(folder)
    if problems:
        return Candidate(tuple(problems))
    place = _place(folder, name)
    found = check_candidate(documents, Document(Kind.PROTOCOL, place, content), registry_rules(settings), str(folder))
    own = [replace(problem, place=name) if problem.place == place else problem for problem in found.problems]
    return replace(found, problems=tuple(own))


def publish_in_folder(settings: Settings, name: str, content: bytes) -> Path | None:
    """The new file; None if the registry has this version already. Raises `RegistryRefused` and OSError."""
    if not settings.registry:
        raise SettingsError(
            "LUCIUS_REGISTRY is not set, and the registry that ships with LUCIUS is not changed: set it to a folder of"
            " your own, or to appconfig://NAME.azconfig.io"
        )
    found = check_protocol(settings, name, content)
    _refuse(found)
    folder = _folder(settings)
    if found.is_published or _place(folder, name) != name:
        return None
    path = folder / file_name(found.identity)
    if path.exists():
        raise RegistryRefused(f"{path} exists, and is something else: rename it")
    write_file(path, content)
    return path


def publish_in_store(settings: Settings, name: str, content: bytes, by: str) -> bool:
    """False if the store has this version already. Raises `RegistryRefused` and `PushEndedHalfway`."""

    async def work() -> bool:
        from lucius.registries.appconfig.pushing import plan_push
        from lucius.registries.appconfig.stored import read_stored

        async with opened_store(settings) as (store, large):
            stored = await read_stored(store, large, registry_rules(settings))
            found = _check_in_store(settings, stored, name, content)
            _refuse(found)
            if not stored.is_one_state:
                raise RegistryRefused(
                    "a push is under way or ended halfway, or a key was changed without the sentinel:"
                    " `lucius registry push` first"
                )
            if found.is_published:
                return False
            await pushed(store, large, plan_push(stored, stored.documents | {found.identity: content}), by)
            return True

    return run(work(), settings)


def _refuse(found: Candidate) -> None:
    if found.problems:
        raise RegistryRefused("\n".join(map(str, found.problems)))


async def _stored(settings: Settings) -> Stored:
    from lucius.registries.appconfig.stored import read_stored

    async with opened_store(settings) as (store, large):
        return await read_stored(store, large, registry_rules(settings))


def _check_in_store(settings: Settings, stored: Stored, name: str, content: bytes) -> Candidate:
    from lucius.registries.appconfig.keys import KEY_LINE
    from lucius.registries.appconfig.stored import SOURCE

    document = Document(Kind.PROTOCOL, name, content)
    found = check_candidate(stored.raw, document, registry_rules(settings), SOURCE, KEY_LINE)
    return replace(found, problems=(*found.problems, *stored.problems))


def _folder(settings: Settings) -> Path:
    return Path(settings.registry) if settings.registry else SHIPPED


def _place(folder: Path, name: str) -> str:
    """How the registry calls the file, if it is one of its own."""
    path = Path(name).resolve()
    inside = folder.resolve() / Kind.PROTOCOL
    return f"{Kind.PROTOCOL}/{path.name}" if path.parent == inside else name
