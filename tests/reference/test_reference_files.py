"""Refs and workspaces: what may be read, where may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucius.reference.failure import StepFailed
from lucius.reference.files import Workspace, publish, read_bytes


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(StepFailed, match="INPUT_TOO_LARGE"):
        read_bytes((tmp_path / "large").as_uri(), "input_ref")


@pytest.mark.parametrize("relative", ["../x", "ocr/../../x", "/etc/x", "", ".", "a\0b"])
def test_a_workspace_keeps_paths_inside(tmp_path: Path, relative: str) -> None:
    with pytest.raises(StepFailed, match="PATH_FORBIDDEN"):
        Workspace(str(tmp_path)).write(relative, "text")


def test_a_workspace_does_not_follow_a_link_out_of_itself(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "ocr").symlink_to(tmp_path / "outside")
    with pytest.raises(StepFailed, match="PATH_FORBIDDEN"):
        Workspace((tmp_path / "inside").as_uri()).write("ocr/output.txt", "text")
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("ref", ["file:///data/../etc", "/data/../etc", "relative/path", "https://host/workspace"])
def test_a_workspace_ref_that_is_not_a_plain_folder_is_refused(ref: str) -> None:
    with pytest.raises(StepFailed):
        Workspace(ref)


def test_a_result_is_published_to_files_only(tmp_path: Path) -> None:
    result = tmp_path / "result"
    result.write_text("whole")
    assert not publish("https://example.com/out", result)
    assert publish({"uri": (tmp_path / "new" / "out.json").as_uri()}, result)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.json"]
    for folder in (f"{tmp_path.as_uri()}/", tmp_path.as_uri()):
        with pytest.raises(StepFailed, match="OUTPUT_REF_INVALID"):
            publish(folder, result)
