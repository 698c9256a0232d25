"""Workspaces, inputs and outputs in Azure Blob, on Azurite."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
from tests.azurite import ACCOUNT, KEY, Azurite
from tests.platform.blob_service import blob_files, create_containers, directive

from lucius.azure import blob
from lucius.azure.blob_opening import StorageOptions
from lucius.azure.credential import AzureIdentity
from lucius.platform import BlobPath, NonRetryable, PlatformSettings, Retryable, ServiceUnusable, Workspace, WorkStopped
from lucius.platform import workspace as workspace_module
from lucius.platform.blob_files import BlobFiles
from lucius.platform.blob_roots import read_blob_roots
from lucius.platform.file_roots import FileRoot, FileRoots
from lucius.platform.remote_files import RemoteFiles, open_remote_files

CONTAINER = "kit-workspace"
WORK = f"blob://{CONTAINER}/work"
DOCS = f"blob://{CONTAINER}/docs"


@pytest.fixture(scope="module")
def remote(azurite: Azurite) -> Iterator[RemoteFiles]:
    create_containers(azurite, CONTAINER)
    with blob_files(azurite.connection) as blobs:
        yield RemoteFiles(blobs, read_blob_roots(DOCS, blobs.url))


def put(remote: RemoteFiles, name: str, content: bytes) -> None:
    assert remote.blobs is not None
    remote.blobs.write(BlobPath(CONTAINER, name), content)


def content_of(remote: RemoteFiles, name: str) -> bytes | None:
    assert remote.blobs is not None
    return remote.blobs.read(BlobPath(CONTAINER, name), 2**30)


def opened(remote: RemoteFiles, files: FileRoots | None = None, **fields: Any) -> Workspace:
    return Workspace(directive(WORK, **fields), files=files, remote=remote)


def test_what_a_step_writes_is_read_by_the_next_one(remote: RemoteFiles) -> None:
    written = opened(remote).write("ocr/ü output.txt", "søren ☃")
    assert written == BlobPath(CONTAINER, "work/acme/job/OCR/1/ocr/ü output.txt")
    assert written.as_uri() == f"{WORK}/acme/job/OCR/1/ocr/%C3%BC%20output.txt"
    following = opened(remote, step_type="EMBEDDING", workspace_ref=f"{WORK}/acme/job/EMBEDDING/1/")
    assert following.read(written.as_uri()).decode() == "søren ☃"


def test_another_tenants_workspace_is_not_read(remote: RemoteFiles) -> None:
    theirs = opened(remote, tenant="globex").write("secret.txt", "theirs").as_uri()
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        opened(remote).read(theirs)
    around = RemoteFiles(remote.blobs, read_blob_roots(f"shared:blob://{CONTAINER}", ""))
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        opened(around).read(theirs)


def test_input_and_output_are_held_to_the_tenants_folder(remote: RemoteFiles) -> None:
    put(remote, "docs/acme/in.txt", b"input")
    put(remote, "docs/globex/in.txt", b"theirs")
    mine = opened(remote, input_ref=f"{DOCS}/acme/in.txt", output_ref={"uri": f"{DOCS}/acme/new/out.txt"})
    assert mine.read_input() == b"input"
    mine.check_output()
    mine.publish(mine.write("result", b"result"))
    assert content_of(remote, "docs/acme/new/out.txt") == b"result"
    for ref in (f"{DOCS}/globex/in.txt", f"{DOCS}/in.txt", f"blob://{CONTAINER}/keys"):
        other = opened(remote, input_ref=ref, output_ref=ref)
        with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
            other.read_input()
        for act in (other.check_output, lambda other=other: other.publish(mine.write("result", b"result"))):
            with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
                act()
    assert content_of(remote, "docs/globex/in.txt") == b"theirs"


def test_the_accounts_address_is_another_name_of_the_same_blob(remote: RemoteFiles) -> None:
    put(remote, "docs/acme/in.txt", b"input")
    address = f"{remote.account_url}/{CONTAINER}"
    workspace = opened(remote, workspace_ref=f"{address}/work/acme/job/OCR/2/", input_ref=f"{address}/docs/acme/in.txt")
    assert workspace.read_input() == b"input"
    assert workspace.write("x", b"1") == BlobPath(CONTAINER, "work/acme/job/OCR/2/x")
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        opened(remote, input_ref=f"{address}/docs/globex/in.txt").read_input()


@pytest.mark.parametrize("in_blob", [True, False])
def test_files_and_blobs_go_together(remote: RemoteFiles, tmp_path: Path, in_blob: bool) -> None:
    """The input in one, the output in the other, whichever has the workspace."""
    (tmp_path / "in.txt").write_bytes(b"from a file")
    put(remote, "docs/acme/in.txt", b"from a blob")
    files = FileRoots((FileRoot(tmp_path, shared=True),))
    workspace_ref = f"{WORK}/acme/j/OCR/1/" if in_blob else f"{tmp_path.as_uri()}/work/acme/j/OCR/1/"
    for source, target, content in (
        ((tmp_path / "in.txt").as_uri(), f"{DOCS}/acme/copied.txt", b"from a file"),
        (f"{DOCS}/acme/in.txt", (tmp_path / "copied.txt").as_uri(), b"from a blob"),
    ):
        workspace = opened(remote, files, workspace_ref=workspace_ref, input_ref=source, output_ref=target)
        workspace.publish(workspace.write("result", workspace.read_input()))
        assert workspace.read(target) == content


@pytest.mark.parametrize("relative", ["../x", "a/../../x", "/x", "", ".", "a\0b", "a./x", "a\\b"])
def test_a_workspace_keeps_paths_inside(remote: RemoteFiles, relative: str) -> None:
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        opened(remote).write(relative, b"")


@pytest.mark.parametrize("ref", ["blob://x/a/b/c/d", f"{WORK}", f"{WORK}/../acme/job/OCR/1/", f"{WORK}/a/b/c/d?x"])
def test_a_workspace_ref_that_is_no_folder_of_an_attempt_is_refused(remote: RemoteFiles, ref: str) -> None:
    with pytest.raises(NonRetryable):
        opened(remote, workspace_ref=ref)


def test_a_workspace_in_blob_has_no_paths_and_says_what_to_use(remote: RemoteFiles) -> None:
    for act in (lambda: opened(remote).folder, lambda: opened(remote).path("x")):
        with pytest.raises(NonRetryable, match=r"WORKSPACE_NOT_LOCAL.*use write\(\) and open\(\)"):
            act()


def test_a_stale_attempt_writes_nothing(remote: RemoteFiles) -> None:
    def stale() -> None:
        raise WorkStopped("STALE")

    result = opened(remote).write("kept", b"result")
    message = directive(WORK, output_ref=f"{DOCS}/acme/stale.txt")
    workspace = Workspace(message, stale, remote=remote)
    with pytest.raises(WorkStopped):
        workspace.write("never", b"")
    with pytest.raises(WorkStopped):
        workspace.publish(result)
    assert content_of(remote, "work/acme/job/OCR/1/never") is None
    assert content_of(remote, "docs/acme/stale.txt") is None


def test_readers_see_the_old_blob_or_the_new_one(remote: RemoteFiles) -> None:
    """Larger than one request, so that it is written in blocks."""
    workspace, size = opened(remote), 3_000_000
    ref = workspace.write("state", b"a" * size).as_uri()
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(workspace.read(ref))

    reader = threading.Thread(target=read)
    reader.start()
    for letter in b"bcd":
        workspace.write("state", bytes([letter]) * size)
    stop.set()
    reader.join()
    assert seen
    assert all(len(one) == size and len(set(one)) == 1 for one in seen)


def test_large_files_are_streamed_both_ways(remote: RemoteFiles, tmp_path: Path) -> None:
    source, size = tmp_path / "large", 16 * 2**20
    with source.open("wb") as file:
        for number in range(16):
            file.write(bytes([number]) * 2**20)
    workspace = opened(remote, output_ref=f"{DOCS}/acme/large")
    tracemalloc.start()
    try:
        workspace.publish(workspace.write("large", source))
        with workspace.open(f"{DOCS}/acme/large") as file:
            assert file.seek(0, 2) == size
            file.seek(15 * 2**20)
            assert file.read(4) == bytes([15]) * 4
        assert tracemalloc.get_traced_memory()[1] < size * 0.8, "never the whole file in memory"
    finally:
        tracemalloc.stop()


def test_limits_are_held_and_told(remote: RemoteFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(remote, "docs/acme/eleven", b"x" * 11)
    workspace = opened(remote, input_ref=f"{DOCS}/acme/eleven", output_ref=f"{DOCS}/acme/out")
    with pytest.raises(NonRetryable, match=r"INPUT_TOO_LARGE.*11 bytes; at most 10"):
        workspace.read_input(bytes_max=10)
    monkeypatch.setattr(workspace_module, "FILE_BYTES_MAX", 10)
    (tmp_path / "eleven").write_bytes(b"x" * 11)
    for act in (lambda: workspace.write("x", b"x" * 11), lambda: workspace.publish(tmp_path / "eleven")):
        with pytest.raises(NonRetryable, match=r"OUTPUT_TOO_LARGE.*11 bytes; at most 10"):
            act()


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        (f"{DOCS}/acme/missing", "INPUT_NOT_FOUND"),
        (f"{DOCS}/acme/folder/", "INPUT_NOT_A_FILE"),
        (f"blob://{CONTAINER}", "INPUT_NOT_A_FILE"),
    ],
)
def test_an_input_that_is_not_there_fails_for_good(remote: RemoteFiles, ref: str, code: str) -> None:
    with pytest.raises(NonRetryable) as failed:
        opened(remote, input_ref=ref).read_input()
    assert failed.value.code == code


def test_an_output_that_is_a_folder_or_in_no_container_fails_for_good(remote: RemoteFiles, tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(b"")
    with pytest.raises(NonRetryable, match="OUTPUT_REF_INVALID"):
        opened(remote, output_ref=f"{DOCS}/acme/folder/").check_output()
    nowhere = RemoteFiles(remote.blobs, read_blob_roots("blob://no-such-container", ""))
    with pytest.raises(NonRetryable, match=r"OUTPUT_FORBIDDEN.*create the container"):
        opened(nowhere, output_ref="blob://no-such-container/acme/x").publish(tmp_path / "result")


def test_a_workspace_that_cannot_be_written_is_no_fault_of_the_command(remote: RemoteFiles) -> None:
    with pytest.raises(Retryable, match=r"STORAGE_UNAVAILABLE.*create the container"):
        opened(remote, workspace_ref="blob://no-such-container/w/acme/job/OCR/1/").write("x", b"")


def test_an_account_that_is_away_may_come_back(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    options = blob._options()
    options["retry_policy"].total_retries = 0
    monkeypatch.setattr(blob, "_options", lambda: options)
    connection = azurite.connection.replace(f":{azurite.blob_port}/", ":9/")
    with blob_files(connection) as blobs:
        away = RemoteFiles(blobs, read_blob_roots(DOCS, blobs.url))
        with pytest.raises(Retryable, match="STORAGE_UNAVAILABLE"):
            opened(away, input_ref=f"{DOCS}/acme/x").read_input()


def test_a_signature_gives_what_it_permits_and_is_not_told(azurite: Azurite, remote: RemoteFiles) -> None:
    put(remote, "docs/acme/signed", b"content")
    until, kinds = datetime.now(UTC) + timedelta(minutes=5), ResourceTypes(object=True)
    sas = generate_account_sas(ACCOUNT, KEY, kinds, AccountSasPermissions(read=True), until)

    class Emulated(StorageOptions):
        """Azurite is not where Azure would be."""

        def open(self, identity: AzureIdentity) -> Any:
            from lucius.azure.blob import BlobAccount

            return BlobAccount.named(self.account, self.sas, f"http://127.0.0.1:{azurite.blob_port}/{ACCOUNT}")

    options = Emulated(account=ACCOUNT, sas=sas)
    assert options.fault() is None
    assert sas not in repr(options)
    with BlobFiles(options, AzureIdentity()) as blobs:
        signed = opened(RemoteFiles(blobs, remote.blob_roots), input_ref=f"{DOCS}/acme/signed")
        assert signed.read_input() == b"content"
        with pytest.raises(Retryable, match="STORAGE_UNAVAILABLE") as refused:
            signed.write("x", b"")
    assert sas.rpartition("sig=")[2] not in str(refused.value)


# --- Settings --------------------------------------------------------------------------------------------------------


def test_without_an_account_a_blob_names_the_setting(tmp_path: Path) -> None:
    local = Workspace(directive(tmp_path.as_uri(), input_ref="blob://docs/acme/x"))
    with pytest.raises(NonRetryable, match=r"REF_SCHEME_UNSUPPORTED.*set LUCIUS_STORAGE_ACCOUNT"):
        local.read_input()
    with pytest.raises(NonRetryable, match=r"REF_SCHEME_UNSUPPORTED.*workspace_ref is in Azure Blob"):
        Workspace(directive(WORK))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"storage_account": "Not A Name"}, "LUCIUS_STORAGE_ACCOUNT is not the name"),
        ({"storage_sas": "sv=1&sig=secretsecret"}, "needs LUCIUS_STORAGE_ACCOUNT"),
        ({"storage_account": "acme", "storage_sas": "secretsecret"}, "is not a shared access signature"),
        ({"storage_connection": "AccountKey=secretsecret"}, "LUCIUS_STORAGE_CONNECTION: this is not"),
        ({"blob_roots": "blob://docs"}, "LUCIUS_PLATFORM_BLOB_ROOTS is set, but this service has no storage account"),
        ({"storage_account": "acme", "storage_sas": "sig=x", "blob_roots": "docs"}, "LUCIUS_PLATFORM_BLOB_ROOTS"),
    ],
)
def test_settings_that_name_no_account_are_refused_without_their_secret(fields: dict[str, str], told: str) -> None:
    settings = PlatformSettings(**fields)
    assert "secretsecret" not in repr(settings)
    with pytest.raises(ServiceUnusable, match=told) as refused, open_remote_files(settings):
        pass
    assert "secretsecret" not in str(refused.value)
