"""What `lucius registry` does: a folder of YAML files compared with App Configuration, and copied to and from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.bootstrap import open_identity
from lucius.bootstrap.registry import is_in_appconfig, open_appconfig, registry_rules
from lucius.domain.errors import InfrastructureError
from lucius.ports.registry import Problem
from lucius.registries.comparison import Difference
from lucius.registries.files import read_folder
from lucius.registries.versions import changed_versions
from lucius.roles.running import run
from lucius.settings import Settings, SettingsError

if TYPE_CHECKING:
    from lucius.registries.appconfig import AppConfigStore
    from lucius.registries.appconfig.history import PushRecord
    from lucius.registries.appconfig.pulling import FileChange
    from lucius.registries.appconfig.pushing import PushPlan
    from lucius.registries.appconfig.reading import LargeDocuments
    from lucius.registries.appconfig.sentinel import SentinelText


class RegistryRefused(Exception):
    """Nothing was changed, because of what the text says."""


class PushEndedHalfway(Exception):
    """The store has a part of a push; the next one continues it."""


@dataclass(frozen=True)
class PlannedPush:
    """What a push would do."""

    plan: PushPlan
    problems: tuple[Problem, ...]
    """Why it may not be done."""
    under_way: str | None
    """Another push that may still be running."""
    names: dict[str, str]
    """The file of each document, by identity."""

    @property
    def differences(self) -> list[Difference]:
        return self.plan.differences


def plan_folder_push(settings: Settings, folder: Path) -> PlannedPush:
    """Compare the store with what a push of this folder would make of it."""

    async def work() -> PlannedPush:
        from lucius.registries.appconfig.pushing import plan_push, push_under_way
        from lucius.registries.appconfig.stored import read_stored

        rules = registry_rules(settings)
        contents = read_folder(folder, rules)
        async with opened_store(settings) as (store, large):
            stored = await read_stored(store, large, rules)
        documents = {identity: document.content for identity, document in contents.documents.items()}
        problems = (*contents.problems, *changed_versions(stored.contents.protocols, contents))
        plan = plan_push(stored, documents)
        names = {identity: document.place for identity, document in contents.documents.items()}
        return PlannedPush(plan, problems, push_under_way(plan, datetime.now(UTC)), names)

    return run(work(), settings)


def push_planned(settings: Settings, plan: PushPlan, by: str) -> SentinelText:
    """Raises `RegistryRefused` or `PushEndedHalfway`."""

    async def work() -> SentinelText:
        async with opened_store(settings) as (store, large):
            return await pushed(store, large, plan, by)

    return run(work(), settings)


async def pushed(store: AppConfigStore, large: LargeDocuments | None, plan: PushPlan, by: str) -> SentinelText:
    from lucius.registries.appconfig.pushing import PushHalted, PushRefused, push

    try:
        return await push(store, large, plan, by)
    except PushRefused as error:
        raise RegistryRefused(str(error)) from error
    except PushHalted as error:
        raise PushEndedHalfway(str(error)) from error


def plan_folder_pull(settings: Settings, folder: Path) -> list[FileChange]:
    """Raises `RegistryRefused` if the store has no state to copy."""

    async def work() -> list[FileChange]:
        from lucius.registries.appconfig.pulling import plan_pull
        from lucius.registries.appconfig.stored import read_stored

        rules = registry_rules(settings)
        async with opened_store(settings) as (store, large):
            stored = await read_stored(store, large, rules)
            if not stored.is_one_state:
                raise RegistryRefused(
                    "a push is under way or ended halfway, or a key was changed without the sentinel: the store has no"
                    " state to copy; `lucius registry push` mends it"
                )
            if stored.unreadable_keys:
                raise RegistryRefused("\n".join(map(str, stored.problems)))
            try:
                return await plan_pull(store, stored, folder, rules)
            except ValueError as error:
                raise RegistryRefused(str(error)) from error

    return run(work(), settings)


def pull_files(folder: Path, changes: list[FileChange]) -> None:
    """Raises `RegistryRefused`, and OSError."""
    from lucius.registries.appconfig.pulling import apply_pull

    try:
        apply_pull(folder, changes)
    except ValueError as error:
        raise RegistryRefused(str(error)) from error


def list_pushes(settings: Settings, count_max: int) -> list[PushRecord]:
    """The newest first."""

    async def work() -> list[PushRecord]:
        from lucius.registries.appconfig.history import read_history

        async with opened_store(settings) as (store, _):
            return await read_history(store, count_max)

    return run(work(), settings)


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[tuple[AppConfigStore, LargeDocuments | None]]:
    """Raises `InfrastructureError` if it does not answer."""
    if not is_in_appconfig(settings):
        where = f"the folder {settings.registry}" if settings.registry else "the registry that ships with LUCIUS"
        raise SettingsError(
            f"LUCIUS_REGISTRY is {where}: this needs a store, such as LUCIUS_REGISTRY=appconfig://NAME.azconfig.io"
        )
    async with open_identity(settings) as identity, open_appconfig(settings, identity) as opened:
        from lucius.registries.appconfig import StoreFailed

        try:
            yield opened
        except StoreFailed as error:
            raise InfrastructureError.unavailable(str(error)) from error
