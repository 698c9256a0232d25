"""Refs to blobs: what they name, what is refused, and which containers and prefixes a tenant may name."""

from __future__ import annotations

from typing import Any

import pytest

from lucius.platform import BlobPath, NonRetryable, ServiceUnusable
from lucius.platform.blob_roots import read_blob_roots
from lucius.platform.file_roots import tenant_folder
from lucius.platform.refs import blob_of, is_blob_uri

ACCOUNT = "https://acme.blob.core.windows.net"
SECRET = "nobody-may-see-this"


@pytest.mark.parametrize(
    ("ref", "container", "name"),
    [
        ("blob://inbox/a/b.pdf", "inbox", "a/b.pdf"),
        ("blob://inbox/a%20b/%C3%BC%23.pdf", "inbox", "a b/ü#.pdf"),
        ("BLOB://inbox/100%2525", "inbox", "100%25"),
        ("blob://inbox", "inbox", ""),
        ({"uri": "blob://inbox/x", "pages": 3}, "inbox", "x"),
        (f"{ACCOUNT}/inbox/a/b.pdf", "inbox", "a/b.pdf"),
        ("HTTPS://ACME.blob.core.windows.net:443/inbox/x", "inbox", "x"),
        ("https://acme.blob.core.windows.net./inbox/x", "inbox", "x"),
    ],
)
def test_a_ref_names_a_blob(ref: Any, container: str, name: str) -> None:
    uri = ref["uri"] if isinstance(ref, dict) else ref
    assert is_blob_uri(uri, ACCOUNT)
    assert blob_of(ref, "input_ref", ACCOUNT) == (container, name)


@pytest.mark.parametrize(
    "uri",
    [
        *("https://other.blob.core.windows.net/inbox/x", "https://acme.blob.core.windows.net.evil.example/inbox/x"),
        *("http://acme.blob.core.windows.net/inbox/x", "https://acme.blob.core.windows.net:444/inbox/x"),
        *("file:///inbox/x", "s3://inbox/x", "blobs://inbox/x"),
    ],
)
def test_only_the_accounts_own_address_is_a_blob(uri: str) -> None:
    """The process's credential goes to no other host, and to none unencrypted."""
    assert not is_blob_uri(uri, ACCOUNT)


def test_an_emulators_account_is_in_the_path() -> None:
    account = "http://127.0.0.1:10000/devstoreaccount1"
    assert blob_of(f"{account}/inbox/x", "ref", account) == ("inbox", "x")
    assert not is_blob_uri("http://127.0.0.1:10000/devstoreaccount2/inbox/x", account)


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("blob://inbox/../other/x", "PATH_FORBIDDEN"),
        ("blob://inbox/%2e%2e/x", "PATH_FORBIDDEN"),
        ("blob://inbox/a%2f..%2fx", "PATH_FORBIDDEN"),
        ("blob://inbox/./x", "REF_INVALID"),
        ("blob://inbox/acme./x", "REF_INVALID"),
        ("blob://inbox//x", "REF_INVALID"),
        ("blob://inbox/a%5cb", "REF_INVALID"),
        ("blob://inbox/a%00b", "REF_INVALID"),
        ("blob://inbox/%ff", "REF_INVALID"),
        ("blob://inbox/" + "x" * 1025, "REF_INVALID"),
        ("blob://inbox/" + "x" * 3000, "REF_INVALID"),
        ("blob://In/x", "REF_INVALID"),
        ("blob:///x", "REF_INVALID"),
        ("blob://inbox:80/x", "REF_INVALID"),
        ("blob://inbox:port/x", "REF_INVALID"),
        (f"blob://user:{SECRET}@inbox/x", "REF_INVALID"),
        (f"blob://inbox/x?sv=1&sig={SECRET}", "REF_INVALID"),
        (f"{ACCOUNT}/inbox/x?sig={SECRET}", "REF_INVALID"),
        (f"{ACCOUNT}/inbox/x?snapshot=2026-01-01", "REF_INVALID"),
        (f"{ACCOUNT}/", "REF_INVALID"),
    ],
)
def test_a_ref_that_could_be_two_things_or_hold_a_secret_is_refused(ref: str, code: str) -> None:
    with pytest.raises(NonRetryable) as refused:
        blob_of(ref, "input_ref", ACCOUNT)
    assert refused.value.code == code
    assert SECRET not in str(refused.value)


def test_a_path_becomes_the_ref_that_it_came_from() -> None:
    path = BlobPath("inbox", "a b/ü#?%.pdf")
    assert blob_of(path.as_uri(), "ref", "") == path


# --- Roots -----------------------------------------------------------------------------------------------------------

ROOTS = read_blob_roots(f"blob://docs/in, shared:readonly:{ACCOUNT}/templates,readonly:blob://archive", ACCOUNT)
WORKSPACE = BlobPath("docs", "in/acme/work")


@pytest.mark.parametrize(
    ("uri", "read", "write"),
    [
        ("blob://docs/in/acme/x", True, True),
        (f"{ACCOUNT}/docs/in/acme/a/b", True, True),
        ("blob://docs/in/globex/x", False, False),
        ("blob://docs/in/acme2/x", False, False),
        ("blob://docs/in/acme", False, False),
        ("blob://docs/in/x", False, False),
        ("blob://docs/x", False, False),
        ("blob://templates/any/x", True, False),
        ("blob://templates", False, False),
        ("blob://archive/acme/x", True, False),
        ("blob://archive/globex/x", False, False),
        ("blob://elsewhere/acme/x", False, False),
        ("blob://docs/in/acme/work/globex/x", False, False),
    ],
)
def test_a_tenant_has_its_own_folder_in_every_root(uri: str, read: bool, write: bool) -> None:
    path = blob_of(uri, "ref", ACCOUNT)
    for check, allowed in ((ROOTS.check_readable, read), (ROOTS.check_writable, write)):
        if allowed:
            check("acme", path, "ref", WORKSPACE)
            continue
        with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*allowed for this tenant: blob://docs/in/acme/"):
            check("acme", path, "ref", WORKSPACE)


def test_without_roots_nothing_is_allowed_and_the_setting_is_named() -> None:
    with pytest.raises(NonRetryable, match=r"allowed for this tenant: none, see LUCIUS_PLATFORM_BLOB_ROOTS"):
        read_blob_roots("", "").check_readable("acme", BlobPath("docs", "acme/x"), "input_ref", None)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("docs", "not blob://container/path"),
        ("s3://docs", "not blob://container/path"),
        ("https://other.blob.core.windows.net/docs", "not blob://container/path"),
        ("blob://Docs", "does not name a container"),
        (f"blob://docs?sig={SECRET}", "has a query"),
        ("blob://docs/in,blob://docs/in/acme", "overlap"),
        ("blob://docs,shared:blob://docs", "overlap"),
    ],
)
def test_a_root_that_cannot_be_used_is_refused(setting: str, told: str) -> None:
    with pytest.raises(ServiceUnusable, match=rf"LUCIUS_PLATFORM_BLOB_ROOTS.*{told}") as refused:
        read_blob_roots(setting, ACCOUNT)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("tenant", ["acme.", "a\\b", "..."])
def test_a_tenant_that_azure_might_take_for_another_has_a_digest_for_its_folder(tenant: str) -> None:
    assert tenant_folder(tenant).startswith("~")
