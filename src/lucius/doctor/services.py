"""Registry, Temporal and workspace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from lucius.azure.blob import BlobAccount, BlobFailed
from lucius.azure.credential import AzureIdentity
from lucius.bootstrap import open_archive, open_rate_gate, open_registry, storage_options, temporal_settings
from lucius.doctor.part import Part
from lucius.domain.job import TEMPORAL
from lucius.notifiers.email import check_email_settings
from lucius.notifiers.operators import NO_JOBS
from lucius.platform.refs import blob_of, is_blob_uri, is_file_ref, path_of
from lucius.ports.archive import ArchiveUnavailable
from lucius.ports.readiness import NotReady
from lucius.settings import Settings, SettingsError


def registry_part(settings: Settings, identity: AzureIdentity) -> Part:
    async def look() -> str:
        async with open_registry(settings, identity, examines=True) as registry:
            if registry.problems:
                raise NotReady("; ".join(map(str, registry.problems)))
            snapshot = registry.snapshot()
        return f"version {snapshot.version}: {len(snapshot.protocols)} protocols, {len(snapshot.tenants)} tenants"

    remedy = "Mend the file or key that is named; see LUCIUS_REGISTRY."
    if settings.registry.startswith("appconfig:"):
        remedy = (
            "Mend the key that is named, with `lucius registry diff` and `push`. If the store does not answer, see"
            " LUCIUS_REGISTRY, _LABEL and LUCIUS_APPCONFIG_CONNECTION, and the role App Configuration Data Reader."
        )
    return Part(name="registry", look=look, remedy=remedy)


def temporal_parts(settings: Settings) -> Sequence[Part]:
    if settings.engine != TEMPORAL:
        return []

    async def look() -> str:
        try:
            from lucius.engines.temporal.client import connect
        except ModuleNotFoundError as error:
            raise SettingsError("LUCIUS_ENGINE=temporal needs the extra `temporal`") from error
        # Only one process can serve the SDK's metrics, and it should not be this one.
        options = replace(temporal_settings(settings), metrics_address="")
        await connect(options)
        return f"namespace {options.namespace} at {options.address}"

    remedy = "See that Temporal runs, and LUCIUS_TEMPORAL_ADDRESS, _NAMESPACE, _API_KEY and _TLS_*."
    return [Part(name="temporal", look=look, remedy=remedy)]


def workspace_part(settings: Settings, identity: AzureIdentity) -> Part:
    async def look() -> str:
        root = settings.workspace_root or (Path(settings.data).resolve() / "workspace").as_uri()  # noqa: ASYNC240
        if is_file_ref(root):
            return _folder(path_of(root, "LUCIUS_WORKSPACE_ROOT"))
        options = storage_options(settings)
        if options.is_set:
            try:
                account = options.open(identity)
            except ValueError as error:
                raise SettingsError(str(error)) from error
            async with account:
                if is_blob_uri(root, account.url):
                    return await _blob_folder(root, account)
        return f"{urlsplit(root).scheme}://…, which only services use; not asked"

    remedy = "Give the user that runs LUCIUS and its services the right to write there; see LUCIUS_WORKSPACE_ROOT."
    if settings.workspace_root and not is_file_ref(settings.workspace_root):
        remedy = (
            "Create the container, and give the services' identity the role Storage Blob Data Contributor on it; see "
            "LUCIUS_WORKSPACE_ROOT and LUCIUS_STORAGE_ACCOUNT."
        )
    return Part(name="workspace", look=look, remedy=remedy)


async def _blob_folder(root: str, account: BlobAccount) -> str:
    path = blob_of(root, "LUCIUS_WORKSPACE_ROOT", account.url)
    try:
        await account.names(path.container, path.name, 1)
    except BlobFailed as error:
        raise NotReady(str(error)) from error
    return f"{path.as_uri()} of the account {account.account} answers"


def rate_gate_parts(settings: Settings) -> Sequence[Part]:
    if not settings.rate_gate:
        return []

    async def look() -> str:
        async with open_rate_gate(settings) as gate:
            assert gate is not None
            return await gate.health()

    remedy = "See that Redis runs, and LUCIUS_RATE_GATE and _CA_FILE. Until then each process counts by itself."
    return [Part(name="rate gate", look=look, remedy=remedy)]


def _folder(path: Path) -> str:
    existing = next((place for place in (path, *path.parents) if place.exists()), Path("/"))
    if not existing.is_dir():
        raise NotReady(f"{existing} is no folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise NotReady(f"{existing} cannot be written to by user {os.geteuid()}")
    return f"{path} can be written to" if existing == path else f"{path} is made by the first job"


def archive_parts(settings: Settings, identity: AzureIdentity) -> Sequence[Part]:
    if not settings.archive:
        return []

    async def look() -> str:
        async with open_archive(settings, identity) as archive:
            assert archive is not None
            try:
                return await archive.health()
            except ArchiveUnavailable as error:
                raise NotReady(str(error)) from error

    remedy = "See LUCIUS_ARCHIVE; until it can be written to, no job is pruned."
    return [Part(name="archive", look=look, remedy=remedy)]


def notification_parts(settings: Settings, identity: AzureIdentity) -> Sequence[Part]:
    """Whether those who are to be told can be: the e-mail server, and a ledger that keeps notifications."""

    async def look() -> str:
        check_email_settings(settings)
        async with open_registry(settings, identity, examines=True) as registry:
            tenants = [one.id for one in registry.snapshot().tenants.values() if one.notifications.recipients]
        scheme = settings.ledger.partition(":")[0]
        if tenants and scheme not in ("sqlite", "postgresql", "postgres"):
            raise NotReady(f"{NO_JOBS.format(scheme)}. These tenants have some: {', '.join(sorted(tenants)[:10])}")
        email = "no server for e-mail"
        if settings.smtp_host:
            await _greet(settings)
            email = f"{settings.smtp_host}:{settings.smtp_port} answers"
        return f"{len(tenants)} tenants have recipients; {email}"

    remedy = "See LUCIUS_SMTP_*, and the recipients in tenants' files."
    return [Part(name="notifications", look=look, remedy=remedy)]


async def _greet(settings: Settings) -> None:
    try:
        async with asyncio.timeout(settings.smtp_timeout_seconds):
            _, writer = await asyncio.open_connection(settings.smtp_host, settings.smtp_port)
    except (OSError, TimeoutError) as error:
        where = f"{settings.smtp_host}:{settings.smtp_port}"
        raise NotReady(f"the e-mail server {where} does not answer: {error or 'too late'}") from error
    writer.close()
