"""Where the server says that tenants' files are: what acceptance checks refs against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lucius.domain.refs import RefPolicy, ref_faults
from lucius.local_tenant_files import LocalTenantFiles
from lucius.platform.file_roots import SAMPLES
from lucius.settings import Settings, SettingsError, read_settings


@pytest.mark.parametrize(
    ("tenant", "segment"),
    [
        ("acme ltd", "acme%20ltd"),
        ("50%", "50%25"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("...", "~ab5df625bc76dbd4e163bed2dd888df828f90159bb93556525c31821b6541d46"),
        ("a:b&c", "a%3Ab%26c"),
    ],
)
def test_workspace_is_one_folder_below_the_root_whatever_the_tenant_is_called(tenant: str, segment: str) -> None:
    for root in ("file:///work", "file:///work/"):
        assert LocalTenantFiles(Settings(workspace_root=root)).workspace(tenant) == f"file:///work/{segment}"


def test_folders_are_those_of_the_data_folder_the_roots_and_the_workspace(tmp_path: Path) -> None:
    for name in ("tenants", "common", "archive"):
        (tmp_path / name).mkdir()
    roots = f"{tmp_path}/tenants, shared:{tmp_path}/common, readonly:{tmp_path}/archive"
    settings = read_settings({"LUCIUS_DATA": f"{tmp_path}/data", "LUCIUS_PLATFORM_FILE_ROOTS": roots})
    folders = LocalTenantFiles(settings).folders("acme")
    writable = (f"{tmp_path}/data/files/acme", f"{tmp_path}/tenants/acme", f"{tmp_path}/common")
    assert folders.writable == writable
    assert folders.readable == (*writable, f"{tmp_path}/archive/acme", str(SAMPLES), f"{tmp_path}/data/workspace/acme")


def test_a_workspace_elsewhere_is_no_folder(tmp_path: Path) -> None:
    files = LocalTenantFiles(Settings(data=str(tmp_path), workspace_root="s3://work/lucius"))
    assert files.workspace("acme") == "s3://work/lucius/acme"
    assert not any("lucius/acme" in folder for folder in files.folders("acme").readable)


@pytest.mark.parametrize(
    "settings",
    [
        {"api_keys_file": "{0}/etc/keys.yaml"},
        {"registry": "{0}/etc/registry"},
        {"ledger": "sqlite:///{0}/etc/lucius.db"},
        {"workspace_root": "file://{0}/etc/workspace"},
        {"temporal_tls_key_file": "{0}/etc/tls.key"},
        {"data": "{0}/etc/data"},
    ],
)
def test_a_root_around_what_belongs_to_the_server_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "etc").mkdir()
    known = {"data": str(tmp_path / "data"), "platform_file_roots": (f"readonly:{tmp_path}/etc",)}
    given = {name: value.format(tmp_path) for name, value in settings.items()}
    with pytest.raises(SettingsError, match=r"LUCIUS_PLATFORM_FILE_ROOTS: '.*/etc' and '.*' overlap"):
        LocalTenantFiles(Settings(**{**known, **given}))


def test_a_workspace_root_that_is_no_local_path_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="LUCIUS_WORKSPACE_ROOT names the host"):
        LocalTenantFiles(Settings(workspace_root="file://elsewhere/work"))


def test_blob_roots_and_a_workspace_in_blob_are_folders_too(tmp_path: Path) -> None:
    settings = read_settings(
        {
            "LUCIUS_DATA": str(tmp_path),
            "LUCIUS_WORKSPACE_ROOT": "blob://work/lucius/",
            "LUCIUS_PLATFORM_BLOB_ROOTS": "blob://docs,readonly:shared:https://acme.blob.core.windows.net/templates",
            "LUCIUS_STORAGE_ACCOUNT": "acme",
        }
    )
    files = LocalTenantFiles(settings)
    assert files.workspace("acme ltd") == "blob://work/lucius/acme%20ltd"
    folders = files.folders("acme ltd")
    blobs = ("blob://docs/acme ltd", "blob://templates", "blob://work/lucius/acme ltd")
    assert tuple(one for one in folders.readable if one.startswith("blob:")) == blobs
    assert tuple(one for one in folders.writable if one.startswith("blob:")) == blobs[:1]
    policy = RefPolicy(schemes=("blob",))
    for uri, allowed in (
        ("blob://docs/acme%20ltd/x", True),
        ("blob://templates/any/x", True),
        ("blob://work/lucius/acme%20ltd/job/x", True),
        ("blob://work/lucius/globex/job/x", False),
        ("blob://docs/globex/x", False),
        ("blob://docs/acme%20ltd", False),
        ("blob://other/acme%20ltd/x", False),
    ):
        faults = ref_faults(uri, "/input_ref", policy, folders.readable)
        assert [fault.code for fault in faults] == ([] if allowed else ["REF_FORBIDDEN"]), uri


def test_without_blob_roots_the_server_leaves_blobs_to_the_services(tmp_path: Path) -> None:
    folders = LocalTenantFiles(Settings(data=str(tmp_path), workspace_root="blob://work/lucius")).folders("acme")
    assert ref_faults("blob://any/x", "/input_ref", RefPolicy(schemes=("blob",)), folders.readable) == []


@pytest.mark.parametrize(
    "root",
    [
        "blob://work/lucius?sig=a-secret",
        "https://user:a-secret@acme.blob.core.windows.net/work",
        "https://acme.blob.core.windows.net/work#a-secret",
        "blob://W/a-secret",
    ],
)
def test_a_workspace_root_with_a_secret_in_it_is_refused_without_it(tmp_path: Path, root: str) -> None:
    with pytest.raises(SettingsError, match="LUCIUS_WORKSPACE_ROOT") as refused:
        LocalTenantFiles(Settings(data=str(tmp_path), workspace_root=root))
    assert "a-secret" not in str(refused.value)
