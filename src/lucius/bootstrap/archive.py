"""The archive of pruned jobs, if the settings name one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lucius.archives.files import BlobFolder, FileArchive, Folder
from lucius.archives.formats import open_format
from lucius.azure.credential import AzureIdentity
from lucius.bootstrap.registry import storage_options
from lucius.ports.archive import Archive
from lucius.settings import Settings, SettingsError

FORM = "must be file:///a/folder, or blob://container/prefix"


@asynccontextmanager
async def open_archive(settings: Settings, identity: AzureIdentity) -> AsyncIterator[Archive | None]:
    """Raises `SettingsError`."""
    if not settings.archive:
        yield None
        return
    format_ = open_format(settings.archive_format)
    address = urlsplit(settings.archive)
    if address.scheme == "file" and address.path.startswith("/") and address.netloc in ("", "localhost"):
        yield FileArchive(Folder(Path(unquote(address.path))), format_)
        return
    if address.scheme != "blob" or not address.netloc:
        raise SettingsError(f"LUCIUS_ARCHIVE={settings.archive!r}: {FORM}")
    options = storage_options(settings)
    if not options.is_set:
        raise SettingsError("LUCIUS_ARCHIVE=blob://… needs LUCIUS_STORAGE_ACCOUNT, or for an emulator _CONNECTION")
    try:
        account = options.open(identity)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    async with account:
        yield FileArchive(BlobFolder(account, address.netloc, unquote(address.path)), format_)
