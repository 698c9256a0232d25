"""Tenants' files on this machine. Services open the same files that are accepted here: both use `FileRoots`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from lucius.domain.refs import FileFolders
from lucius.platform import ServiceUnusable, StepFailed
from lucius.platform.file_roots import read_file_roots, tenant_folder
from lucius.platform.refs import is_file_ref, path_of
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
        return FileFolders(
            readable=tuple(str(path) for path in (*self._roots.readable(tenant_id), *workspaces)),
            writable=tuple(str(path) for path in self._roots.writable(tenant_id)),
        )


def _protected(settings: Settings, workspace_root: str) -> list[Path]:
    """The server's own files that may be outside its data folder."""
    named = (settings.api_keys_file, settings.registry, settings.temporal_tls_key_file)
    paths = [Path(name) for name in named if name]
    if settings.ledger.startswith("sqlite:///"):
        paths.append(Path(settings.ledger.removeprefix("sqlite:///")))
    if is_file_ref(workspace_root):
        paths.append(path_of(workspace_root, "LUCIUS_WORKSPACE_ROOT"))
    return paths
