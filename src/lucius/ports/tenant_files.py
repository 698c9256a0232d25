"""The tenant-files port: where a tenant's files are on this deployment."""

from __future__ import annotations

from typing import Protocol

from lucius.domain.refs import FileFolders


class TenantFiles(Protocol):
    """Both methods take a tenant in normal form, and no two tenants share a folder."""

    def folders(self, tenant_id: str) -> FileFolders:
        """The folders that the tenant's `file` refs must be under."""
        ...

    def workspace(self, tenant_id: str) -> str:
        """The URI of the tenant's folder in the workspace, without a trailing slash."""
        ...
