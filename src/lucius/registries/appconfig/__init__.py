"""The registry in Azure App Configuration: see docs/how-to/app-configuration.md and decision 0046."""

from lucius.registries.appconfig.options import AppConfigOptions
from lucius.registries.appconfig.registry import AppConfigRegistry
from lucius.registries.appconfig.store import AppConfigStore, StoreConflict, StoreFailed

__all__ = ["AppConfigOptions", "AppConfigRegistry", "AppConfigStore", "StoreConflict", "StoreFailed"]
