"""Tenants' files on this machine and in Azure Blob. Services open the same that are accepted here: both use `FileRoots`
and `BlobRoots`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lucius.domain.refs import FileFolders
from lucius.platform import ServiceUnusable, StepFailed
from lucius.platform.blob_roots import read_blob_roots
from lucius.platform.file_roots import read_file_roots, tenant_folder
from lucius.platform.refs import blob_of, is_file_ref, path_of
from lucius.settings import Settings, SettingsError

TENANTS_CACHED_MAX = 4_096


class LocalTenantFiles:
    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError` for an invalid root."""
        default = (Path(settings.data).resolve() / "workspace").as_uri()
        self._workspace_root = (settings.workspace_root or default).rstrip("/")
        try:
            roots = ",".join(settings.platform_file_roots)
            self._roots = read_file_roots(roots, settings.data, _protected(settings, self._workspace_root))
            account = settings.storage_account
            account_url = f"https://{account}.blob.core.windows.net" if account else ""
            self._blob_roots = read_blob_roots(",".join(settings.platform_blob_roots), account_url)
            _check_workspace_root(self._workspace_root)
        except ServiceUnusable as error:
            raise SettingsError(str(error)) from error
        except StepFailed as error:
            raise SettingsError(error.message) from error
        # Cached: every command needs both.
        self.folders = lru_cache(TENANTS_CACHED_MAX)(self._folders)
        self.workspace = lru_cache(TENANTS_CACHED_MAX)(self._workspace)

    def _workspace(self, tenant_id: str) -> str:
        return f"{self._workspace_root}/{quote(tenant_folder(tenant_id), safe='')}"

    def _folders(self, tenant_id: str) -> FileFolders:
        workspace = self._workspace(tenant_id)
        workspaces = [path_of(workspace, "workspace")] if is_file_ref(workspace) else []
        readable, writable = self._blob_roots.readable(tenant_id), self._blob_roots.writable(tenant_id)
        if self._blob_roots.roots and workspace.startswith("blob:"):
            readable = (*readable, unquote(workspace))
        return FileFolders(
            readable=(*(str(path) for path in (*self._roots.readable(tenant_id), *workspaces)), *readable),
            writable=(*(str(path) for path in self._roots.writable(tenant_id)), *writable),
        )


def _check_workspace_root(root: str) -> None:
    """Services decide what they can use. What is secret in it would be in every directive, so nothing may be."""
    parts = urlsplit(root)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise SettingsError("LUCIUS_WORKSPACE_ROOT must have no credentials, query or fragment in it")
    if parts.scheme == "blob":
        blob_of(root, "LUCIUS_WORKSPACE_ROOT", "")


def _protected(settings: Settings, workspace_root: str) -> list[Path]:
    """The server's own files that may be outside its data folder."""
    registry = "" if settings.registry.startswith("appconfig://") else settings.registry
    named = (settings.api_keys_file, registry, settings.registry_cache, settings.temporal_tls_key_file)
    paths = [Path(name) for name in named if name]
    databases = (settings.ledger, settings.runbooks_database)
    paths += [Path(address.removeprefix("sqlite:///")) for address in databases if address.startswith("sqlite:///")]
    if is_file_ref(workspace_root):
        paths.append(path_of(workspace_root, "LUCIUS_WORKSPACE_ROOT"))
    return paths
