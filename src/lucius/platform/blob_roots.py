"""The containers and prefixes that blob refs may name, for each tenant: what `file_roots` is for files.

There is no root unless `LUCIUS_PLATFORM_BLOB_ROOTS` names one: the service's identity may open far more of the account
than any tenant should.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucius.platform.blob_path import BlobPath
from lucius.platform.errors import NonRetryable, ServiceUnusable, StepFailed
from lucius.platform.file_roots import READONLY, SHARED, tenant_folder, without_marks
from lucius.platform.refs import blob_of, is_blob_uri

SETTING = "LUCIUS_PLATFORM_BLOB_ROOTS"


@dataclass(frozen=True)
class BlobRoot:
    path: BlobPath
    shared: bool = False
    """All tenants share the whole root; otherwise each has its own folder in it."""
    readonly: bool = False

    def folder(self, tenant_id: str) -> BlobPath:
        return self.path if self.shared else self.path.joined(tenant_folder(tenant_id))


@dataclass(frozen=True)
class BlobRoots:
    roots: tuple[BlobRoot, ...] = ()

    def readable(self, tenant_id: str) -> tuple[str, ...]:
        """As text, not percent-encoded."""
        return tuple(_shown(root.folder(tenant_id)) for root in self.roots)

    def writable(self, tenant_id: str) -> tuple[str, ...]:
        return tuple(_shown(root.folder(tenant_id)) for root in self.roots if not root.readonly)

    def check_readable(self, tenant_id: str, path: BlobPath, what: str, workspace_root: BlobPath | None) -> None:
        """Raises `NonRetryable` for a blob that the tenant may not read, whatever is there.

        Under `workspace_root` other tenants' jobs have their files, even if a shared root contains it.
        """
        self._check(self.roots, tenant_id, path, what, workspace_root, "read")

    def check_writable(self, tenant_id: str, path: BlobPath, what: str, workspace_root: BlobPath | None) -> None:
        roots = [root for root in self.roots if not root.readonly]
        self._check(roots, tenant_id, path, what, workspace_root, "written")

    def _check(
        self,
        roots: Sequence[BlobRoot],
        tenant_id: str,
        path: BlobPath,
        what: str,
        workspace_root: BlobPath | None,
        verb: str,
    ) -> None:
        folders = [root.folder(tenant_id) for root in roots]
        is_allowed = any(path.is_below(folder) and path.parts != folder.parts for folder in folders)
        if is_allowed and not (workspace_root and path.is_below(workspace_root)):
            return
        allowed = ", ".join(f"{_shown(folder)}/" for folder in folders) or f"none, see {SETTING}"
        raise NonRetryable("PATH_FORBIDDEN", f"the {what} may not be {verb} there; allowed for this tenant: {allowed}")


def _shown(folder: BlobPath) -> str:
    return "/".join((f"blob://{folder.container}", *folder.parts))


def read_blob_roots(setting: str, account_url: str) -> BlobRoots:
    """The roots of a service with this account. Raises `ServiceUnusable`."""
    roots: list[BlobRoot] = []
    for entry in (one.strip() for one in setting.split(",")):
        if entry:
            root = _read_root(entry, account_url)
            for other in roots:
                if root.path.is_below(other.path) or other.path.is_below(root.path):
                    raise ServiceUnusable(f"{SETTING}: {root.path.as_uri()} and {other.path.as_uri()} overlap")
            roots.append(root)
    return BlobRoots(tuple(roots))


def _read_root(entry: str, account_url: str) -> BlobRoot:
    uri, marks = without_marks(entry)
    if not is_blob_uri(uri, account_url):
        raise ServiceUnusable(
            f"{SETTING}: an entry is not blob://container/path or an address of the storage account, optionally with "
            f"the prefix {SHARED} or {READONLY}"
        )
    try:
        return BlobRoot(blob_of(uri, "entry", account_url), SHARED in marks, READONLY in marks)
    except StepFailed as error:
        raise ServiceUnusable(f"{SETTING}: {error.message}") from error
