"""Which parts an installation has, by its settings."""

from __future__ import annotations

from contextlib import AsyncExitStack

from lucius.bootstrap import open_identity
from lucius.doctor.part import PART_SECONDS_MAX, Diagnosis, examine
from lucius.doctor.services import (
    archive_parts,
    notification_parts,
    rate_gate_parts,
    registry_part,
    temporal_parts,
    workspace_part,
)
from lucius.doctor.stores import Stores
from lucius.doctor.trust import api_keys_part, data_folder_part, identity_parts, secrets_part
from lucius.settings import Settings


async def examine_all(settings: Settings, seconds_max: float = PART_SECONDS_MAX) -> list[Diagnosis]:
    """Raises `SettingsError` for settings that name no part at all."""
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(open_identity(settings))
        stores = await stack.enter_async_context(Stores(settings, identity))
        parts = [
            data_folder_part(settings),
            *stores.parts(),
            *temporal_parts(settings),
            registry_part(settings, identity),
            workspace_part(settings, identity),
            *rate_gate_parts(settings),
            *archive_parts(settings, identity),
            *notification_parts(settings, identity),
            *identity_parts(settings, identity),
            secrets_part(settings, identity),
            api_keys_part(settings, identity),
        ]
        return await examine(parts, settings.secret_values, seconds_max)
