"""A data folder that cannot be used: one sentence on stderr and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.api.conftest import KEY, clean_environment

from lucius.cli.failures import EXIT_UNREACHABLE, EXIT_USAGE

UP = ("up", "--port", "0", "--no-services")
PROFILE = ("up", "--profile", "temporal", "--port", "0", "--no-services")


def run(data: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lucius.cli.main", *words, "--data", str(data)],
        env=clean_environment(LUCIUS_MANAGEMENT_PORT="off", **variables),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def assert_one_sentence(ended: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    for word in words:
        assert word in ended.stderr


@pytest.mark.parametrize("words", [UP, PROFILE])
def test_folder_that_cannot_be_made_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    data = tmp_path / "file" / "data"
    assert_one_sentence(run(data, *words), EXIT_USAGE, str(data), "Not a directory", "--data", "LUCIUS_DATA")


def test_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    data = tmp_path / "file"
    data.touch()
    given = {"LUCIUS_API_KEY": KEY, "LUCIUS_CALLBACK_KEYS": "k1:0123456789abcdef"}
    assert_one_sentence(run(data, *UP, **given), EXIT_USAGE, str(data), "--data")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (UP, "lucius.db"),
        (UP, "lucius.db.owner"),
        (("db", "upgrade"), "lucius.db"),
        (("db", "compact"), "lucius.db.owner"),
    ],
)
def test_database_file_that_cannot_be_opened_is_named(tmp_path: Path, words: tuple[str, ...], name: str) -> None:
    """A folder in its place: it cannot be written to, not even by root."""
    data = tmp_path / "data"
    (data / name).mkdir(parents=True)
    assert_one_sentence(run(data, *words), EXIT_UNREACHABLE, "lucius.db", "cannot be opened")
