"""What a service can reach beyond its own machine: blobs of one storage account, and inputs from the web."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lucius.azure.blob_opening import StorageOptions
from lucius.azure.credential import AzureIdentity
from lucius.platform.blob_files import BlobFiles
from lucius.platform.blob_roots import BlobRoots, read_blob_roots
from lucius.platform.errors import ServiceUnusable
from lucius.platform.https_inputs import HttpsInputs
from lucius.platform.settings import PlatformSettings

NO_ACCOUNT = "this service has no storage account: set LUCIUS_STORAGE_ACCOUNT"


@dataclass(frozen=True)
class RemoteFiles:
    blobs: BlobFiles | None = None
    blob_roots: BlobRoots = field(default_factory=BlobRoots)
    https: HttpsInputs = field(default_factory=HttpsInputs)

    @property
    def account_url(self) -> str:
        return self.blobs.url if self.blobs is not None else ""


@contextmanager
def open_remote_files(settings: PlatformSettings) -> Iterator[RemoteFiles]:
    """By a service's settings. Raises `ServiceUnusable`. Nothing is asked of Azure yet."""
    hosts = tuple(one.strip().lower().rstrip(".") for one in settings.https_hosts.split(",") if one.strip())
    https = HttpsInputs(settings.https_seconds_max, hosts, settings.private_addresses_allowed)
    options = StorageOptions(settings.storage_connection, settings.storage_account, settings.storage_sas)
    if (fault := options.fault(settings.azure_credential)) is not None:
        raise ServiceUnusable(fault)
    if not options.is_set:
        if settings.blob_roots:
            raise ServiceUnusable(f"LUCIUS_PLATFORM_BLOB_ROOTS is set, but {NO_ACCOUNT}")
        yield RemoteFiles(https=https)
        return
    with BlobFiles(options, AzureIdentity(settings.azure_credential, settings.azure_client_id)) as blobs:
        yield RemoteFiles(blobs, read_blob_roots(settings.blob_roots, blobs.url), https)
