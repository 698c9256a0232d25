"""The registry, by its setting: a folder, or a store in App Configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.azure.blob_opening import StorageOptions
from lucius.azure.credential import AzureIdentity
from lucius.local_secrets import is_embedded
from lucius.ports.registry import Registry
from lucius.registries.contents import Rules
from lucius.registries.files import FileRegistry
from lucius.registries.overrides import Overrides
from lucius.settings import Settings, SettingsError
from lucius.warm_up import warm_up

if TYPE_CHECKING:
    from lucius.registries.appconfig import AppConfigOptions, AppConfigStore
    from lucius.registries.appconfig.reading import LargeDocuments

APPCONFIG = "appconfig://"
CACHE_FILE = "registry-cache.json"
EXAMINE_SECONDS = 5.0


@asynccontextmanager
async def open_registry(
    settings: Settings, identity: AzureIdentity, *, examines: bool = False
) -> AsyncIterator[Registry]:
    """Raises `RegistryError` if it cannot be used; does not watch it yet. `examines`: whether somebody only wants to
    know what is wrong: nothing is written, and the store is not awaited for long."""
    if not is_in_appconfig(settings):
        folder = Path(settings.registry) if settings.registry else None
        rules = registry_rules(settings)
        yield FileRegistry(folder, rules.overrides, file_scheme_allowed=rules.file_scheme_allowed)
        return
    async with open_appconfig(settings, identity) as (store, large):
        from lucius.registries.appconfig import AppConfigRegistry
        from lucius.registries.appconfig.cache import RegistryCache

        path = Path(settings.registry_cache) if settings.registry_cache else Path(settings.data) / CACHE_FILE
        source = f"{store.options.endpoint} {store.options.label}".strip()
        cache = RegistryCache(path, source, is_written=not examines)
        registry = AppConfigRegistry(store, cache, registry_rules(settings), large)
        warm_up()  # Those imports added types.
        await registry.open(EXAMINE_SECONDS if examines else None)
        yield registry


def is_in_appconfig(settings: Settings) -> bool:
    return settings.registry.startswith(APPCONFIG)


def registry_interval(settings: Settings) -> float:
    """How often the registry is looked at. App Configuration counts requests."""
    return settings.appconfig_poll_seconds if is_in_appconfig(settings) else settings.registry_reload_seconds


def registry_rules(settings: Settings) -> Rules:
    overrides = Overrides(
        policy=settings.policy,
        max_inflight=settings.max_inflight,
        max_inflight_per_tenant=settings.max_inflight_per_tenant,
        job_deadline_seconds=settings.job_deadline_seconds,
        unknown_tenants_allowed=False if settings.tenants_registered_only else None,
    )
    return Rules(overrides, is_embedded(settings) or settings.file_refs_allowed)


@asynccontextmanager
async def open_appconfig(
    settings: Settings, identity: AzureIdentity
) -> AsyncIterator[tuple[AppConfigStore, LargeDocuments | None]]:
    """The store, and where its large documents are. Raises `SettingsError`, also if the extra is not installed."""
    options = _appconfig_options(settings)
    from lucius.registries.appconfig import AppConfigStore

    async with AsyncExitStack() as stack:
        large = await stack.enter_async_context(_open_large(settings, identity))
        yield await stack.enter_async_context(AppConfigStore(options, identity)), large


def _appconfig_options(settings: Settings) -> AppConfigOptions:
    try:
        import azure.appconfiguration.aio  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("azure", "aiohttp"):
            raise
        raise SettingsError(
            "LUCIUS_REGISTRY=appconfig://… needs the extra `azure`: pip install '.[azure]' in a clone of LUCIUS"
        ) from error
    from lucius.registries.appconfig import AppConfigOptions

    options = AppConfigOptions(
        address=settings.registry, connection=settings.appconfig_connection, label=settings.registry_label
    )
    if (fault := options.fault()) is not None:
        raise SettingsError(fault)
    return options


def storage_options(settings: Settings) -> StorageOptions:
    """Raises `SettingsError`."""
    options = StorageOptions(settings.storage_connection, settings.storage_account, settings.storage_sas)
    if (fault := options.fault(settings.azure_credential)) is not None:
        raise SettingsError(fault)
    return options


@asynccontextmanager
async def _open_large(settings: Settings, identity: AzureIdentity) -> AsyncIterator[LargeDocuments | None]:
    if not settings.registry_container:
        yield None
        return
    from lucius.registries.appconfig.blobs import BlobDocuments

    options = storage_options(settings)
    if not options.is_set:
        raise SettingsError(
            "LUCIUS_REGISTRY_CONTAINER needs a storage account: set LUCIUS_STORAGE_ACCOUNT, or for an emulator"
            " LUCIUS_STORAGE_CONNECTION"
        )
    try:
        account = options.open(identity)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    async with account:
        yield BlobDocuments(account, settings.registry_container)
