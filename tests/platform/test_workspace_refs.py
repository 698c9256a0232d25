"""Refs and workspaces: what may be read, where may be written, and by whom."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from lucius.platform import Attempt, Directive, NonRetryable, PlatformService, Result, Workspace, WorkStopped, rehearse
from lucius.platform import workspace as workspace_module
from lucius.platform.attempt import StopReason
from lucius.platform.file_roots import FileRoot, FileRoots
from lucius.platform.refs import path_of
from lucius.platform.safe_files import write_atomically

ROOT = "shared"


def directive(folder: Path, tenant: str = "acme", **fields: Any) -> Directive:
    message = {
        "jobId": "job",
        "tenant_id": tenant,
        "stepId": "ocr",
        "step_type": "OCR",
        "service": "ocr",
        "attempt_no": 1,
        "lease_id": "lease",
        "lease_seconds": 60,
        "callback_token": "token",
        "workspace_ref": (folder / ROOT / tenant / "job" / "OCR" / "1").as_uri() + "/",
        "input_ref": (folder / "input.txt").as_uri(),
        "output_ref": (folder / "output.txt").as_uri(),
        **fields,
    }
    return Directive.read(message)


def opened(folder: Path, **fields: Any) -> Workspace:
    """A workspace whose refs may lie anywhere in the test's folder."""
    return Workspace(directive(folder, **fields), files=FileRoots((FileRoot(folder, shared=True),)))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return opened(tmp_path)


# --- Writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relative", ["../x", "ocr/../../x", "ocr/..", "/etc/x", "", ".", "./", "a\0b", ".."])
def test_a_workspace_keeps_paths_inside(workspace: Workspace, relative: str) -> None:
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        workspace.write(relative, "text")


def test_a_workspace_does_not_follow_a_link_out_of_itself(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    workspace.folder.mkdir(parents=True)
    (workspace.folder / "ocr").symlink_to(tmp_path / "outside")
    (workspace.folder / "file").symlink_to(tmp_path / "outside" / "file")
    for relative in ("ocr/output.txt", "file"):
        with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
            workspace.write(relative, "text")
    assert not list((tmp_path / "outside").iterdir())


def test_links_in_a_circle_lead_nowhere(workspace: Workspace, tmp_path: Path) -> None:
    workspace.folder.mkdir(parents=True)
    (workspace.folder / "circle").symlink_to(workspace.folder / "circle")
    with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*symbolic link 'circle'"):
        workspace.write("circle/output.txt", "text")
    (tmp_path / "input.txt").symlink_to(tmp_path / "input.txt")
    with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*symbolic link 'input.txt'"):
        workspace.read_input()


@pytest.mark.parametrize(
    "ref",
    [
        *("file:///data/../etc", "/data/../etc", "file:///data/%2e%2e/etc", "relative/path", "https://host/workspace"),
        "file:///too/short/path",
    ],
)
def test_a_workspace_ref_that_is_not_a_plain_folder_is_refused(tmp_path: Path, ref: str) -> None:
    with pytest.raises(NonRetryable):
        opened(tmp_path, workspace_ref=ref)


def test_a_tenants_folder_is_percent_encoded(tmp_path: Path) -> None:
    ref = (tmp_path / ROOT).as_uri() + "/a%20b%C3%BC/job/OCR/1/"
    workspace = opened(tmp_path, workspace_ref=ref)
    assert workspace.write("output.txt", "text") == tmp_path / ROOT / "a bü" / "job" / "OCR" / "1" / "output.txt"


def test_a_file_is_written_whole_or_not_at_all(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    target = workspace.write("ocr/output.txt", "old")
    assert target.read_text() == "old"

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        workspace.write("ocr/output.txt", "new")
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["output.txt"], "no temporary file is left"


def test_readers_see_the_old_file_or_the_new_one(workspace: Workspace) -> None:
    target = workspace.write("state", "a" * 100_000)
    seen: set[str] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(target.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for letter in "bcdefgh":
        workspace.write("state", letter * 100_000)
    stop.set()
    reader.join(10)
    assert seen
    assert all(len(text) == 100_000 and len(set(text)) == 1 for text in seen)


def test_the_longest_name_that_a_file_may_have_can_be_written(workspace: Workspace) -> None:
    name = "文" * 85
    assert workspace.write(name, b"bytes").read_bytes() == b"bytes"


def test_json_is_written_as_text_that_people_can_read(workspace: Workspace) -> None:
    assert workspace.write_json("a.json", {"text": "ü"}).read_text("utf-8") == '{\n  "text": "ü"\n}\n'


@pytest.mark.parametrize("reason", list(StopReason))
def test_an_attempt_that_was_stopped_writes_nothing(tmp_path: Path, reason: StopReason) -> None:
    attempt = Attempt(directive(tmp_path), FileRoots((FileRoot(tmp_path, shared=True),)))
    workspace = attempt.workspace()
    early = workspace.write("early.txt", "text")
    attempt.stop(reason)
    with pytest.raises(WorkStopped):
        workspace.write("late.txt", "text")
    with pytest.raises(WorkStopped):
        workspace.publish(early)
    with pytest.raises(WorkStopped):
        attempt.report(0.5)
    assert [path.name for path in tmp_path.rglob("*.txt")] == ["early.txt"]


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_not_read(workspace: Workspace, tmp_path: Path) -> None:
    with (tmp_path / "input.txt").open("wb") as file:
        file.truncate(workspace_module.READ_BYTES_MAX + 1)
    with pytest.raises(NonRetryable, match="INPUT_TOO_LARGE"):
        workspace.read_input()
    (tmp_path / "input.txt").write_text("1234")
    assert workspace.read_input(4) == b"1234"
    with pytest.raises(NonRetryable, match="INPUT_TOO_LARGE"):
        workspace.read_input(3)


def uri(path: Path) -> str:
    return path.as_uri()


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("http://example.com/file", "REF_SCHEME_UNSUPPORTED"),
        ("https://127.0.0.1/file", "PATH_FORBIDDEN"),
        ("blob://container/file", "REF_SCHEME_UNSUPPORTED"),
        ("s3://bucket/key", "REF_SCHEME_UNSUPPORTED"),
        ("plain/path", "REF_SCHEME_UNSUPPORTED"),
        ("/plain/path", "REF_SCHEME_UNSUPPORTED"),
        ("file://elsewhere/file", "REF_INVALID"),
        ("file://[half/file", "REF_INVALID"),
        ("file:relative", "REF_INVALID"),
        ("file:///file?query", "REF_INVALID"),
        ("file:///file#fragment", "REF_INVALID"),
        ("file:///file%00", "REF_INVALID"),
        ("file:///file%ff", "REF_INVALID"),
        ("file:///data/../etc/passwd", "PATH_FORBIDDEN"),
        ("file:///data/%2e%2e/etc/passwd", "PATH_FORBIDDEN"),
        ("file:///data/%2E./etc/passwd", "PATH_FORBIDDEN"),
        ("file:///data%2f..%2fetc", "PATH_FORBIDDEN"),
        ({"uri": "file:///data/../etc"}, "PATH_FORBIDDEN"),
        ({"url": "file:///file"}, "REF_INVALID"),
        ("", "REF_INVALID"),
        (None, "REF_INVALID"),
        (7, "REF_INVALID"),
        ("file:///there/is/no/such/file", "PATH_FORBIDDEN"),
        ("file:///dev/null", "PATH_FORBIDDEN"),
        ("file:///" + "x" * 256, "REF_INVALID"),
        ("file:///\ud800", "REF_INVALID"),
    ],
)
def test_a_ref_that_cannot_be_read_fails_for_good(workspace: Workspace, ref: Any, code: str) -> None:
    with pytest.raises(NonRetryable) as refused:
        workspace.read(ref, "input_ref")
    assert refused.value.code == code
    assert "input_ref" in refused.value.message


def test_a_ref_may_be_an_object_and_is_decoded_once(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "50%25 ü.txt").write_text("text")
    assert workspace.read({"uri": (tmp_path / "50%25 ü.txt").as_uri()}) == b"text"
    assert path_of("file://localhost/a%20b", "ref") == Path("/a b")


# --- Tenants ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """What another tenant's job left behind."""
    path = tmp_path / ROOT / "other" / "job" / "OCR" / "1" / "output.txt"
    path.parent.mkdir(parents=True)
    path.write_text("secret")
    return path


def ways_to(secret: Path, tmp_path: Path) -> list[Path]:
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    return [secret, tmp_path / "link", tmp_path / "folder" / secret.name]


def test_no_ref_leads_into_the_workspace_of_another_tenant(tmp_path: Path, secret: Path) -> None:
    for path in ways_to(secret, tmp_path):
        workspace = opened(tmp_path, input_ref=path.as_uri(), output_ref=path.as_uri())
        with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*input_ref"):
            workspace.read_input()
        with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*ref"):
            workspace.read(path.as_uri())
        with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*output_ref"):
            workspace.publish(workspace.write("result.txt", "mine"))
    assert secret.read_text() == "secret"


def test_a_ref_that_is_forbidden_does_not_tell_what_is_there(tmp_path: Path, secret: Path) -> None:
    workspace = opened(tmp_path, output_ref=secret.parent.as_uri())
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        workspace.publish(workspace.write("result.txt", "mine"))


def test_a_tenant_whose_name_begins_like_ours_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / ROOT / "acme2" / "job" / "OCR" / "1" / "output.txt"
    path.parent.mkdir(parents=True)
    path.write_text("secret")
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        opened(tmp_path, input_ref=path.as_uri()).read_input()


def test_what_earlier_steps_of_the_tenant_left_may_be_read(tmp_path: Path) -> None:
    path = tmp_path / ROOT / "acme" / "job" / "EMBEDDING" / "1" / "output.txt"
    path.parent.mkdir(parents=True)
    path.write_text("ours")
    assert opened(tmp_path, input_ref=path.as_uri()).read_input() == b"ours"


# --- The output ------------------------------------------------------------------------------------------------------


def test_a_result_is_published_to_files_only(tmp_path: Path) -> None:
    result = tmp_path / "result"
    result.write_text("whole")
    elsewhere = opened(tmp_path, output_ref={"uri": "s3://bucket/out.json"})
    for publishing in (lambda: elsewhere.publish(result), elsewhere.check_output):
        with pytest.raises(
            NonRetryable, match=r"REF_SCHEME_UNSUPPORTED.*output_ref s3://bucket/out\.json.*writes file://"
        ):
            publishing()
    opened(tmp_path, output_ref={"uri": (tmp_path / "new" / "out").as_uri()}).publish(result)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    for folder in (f"{tmp_path.as_uri()}/", tmp_path.as_uri()):
        with pytest.raises(NonRetryable, match="OUTPUT_REF_INVALID"):
            opened(tmp_path, output_ref=folder).publish(result)
    with pytest.raises(NonRetryable, match="OUTPUT_FORBIDDEN"):
        opened(tmp_path, output_ref=(result / "below" / "a-file").as_uri()).publish(result)


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "hard").hardlink_to(tmp_path / "target")
    write_atomically(tmp_path / "target", b"new")
    assert ((tmp_path / "target").read_text(), (tmp_path / "hard").read_text()) == ("new", "old")


# --- Rehearsals ------------------------------------------------------------------------------------------------------


def test_a_step_is_rehearsed_without_an_orchestrator(tmp_path: Path) -> None:
    service = PlatformService("ocr")

    @service.step("OCR")
    def ocr(directive: Directive, workspace: Workspace, attempt: Attempt) -> Result:
        attempt.report(0.5, "half")
        text = workspace.read_input().decode() + directive.payload["suffix"] + str(directive.artifact("before", "ref"))
        return Result({"characters": len(text)}, output=workspace.write("ocr/output.txt", text))

    @service.step("LATER")
    async def later(directive: Directive, workspace: Workspace) -> None:
        raise NonRetryable("NOT_TODAY", "come again")

    previous = {"before": {"ref": "x"}}
    rehearsed = rehearse(service, "OCR", tmp_path, input="text", payload={"suffix": "!"}, previous=previous)
    assert rehearsed.result["status"] == "SUCCEEDED"
    assert rehearsed.result["artifacts"] == {"characters": 6}
    assert rehearsed.output.read_text() == "text!x"
    assert (rehearsed.folder / "ocr" / "output.txt").exists()
    assert rehearse(service, "LATER", tmp_path).result["error"]["code"] == "NOT_TODAY"
    with pytest.raises(ValueError, match="no step NEVER; it has LATER, OCR"):
        rehearse(service, "NEVER", tmp_path)
