"""What LUCIUS keeps is for the user who runs it alone: another user of the machine reads nothing of it."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import CALLBACK_KEYS, KEY, LiveServer

from lucius.bootstrap import open_app
from lucius.platform.state_folder import StateFolder
from lucius.settings import Settings

NOBODY = 65_534
READ_ALL = """
import os, sys
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
for path in sys.stdin.read().split("\\0"):
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").close()
    except OSError:
        continue
    print(path)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user of the machine may look into, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="lucius-private-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _all(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def _assert_private(folder: Path) -> None:
    """By the modes of what lies at the top, and, where this runs as root, by trying as somebody else."""
    assert _mode(folder) == 0o700
    for path in folder.iterdir():
        assert _mode(path) & 0o077 == 0, f"{path.name} has {oct(_mode(path))}"
    _assert_unreadable(_all(folder))


def _assert_unreadable(paths: list[Path]) -> None:
    if os.geteuid() != 0:
        return
    ran = subprocess.run(
        [sys.executable, "-I", "-c", READ_ALL.format(nobody=NOBODY)],
        input="\0".join(map(str, paths)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "", f"somebody else reads {ran.stdout}"


async def _open(data: Path, **settings: Any) -> None:
    async with open_app(Settings(data=str(data), **settings)):
        if (data / "lucius.db").exists():
            for suffix in ("", "-wal", "-shm", ".owner"):
                assert _mode(data / f"lucius.db{suffix}") == 0o600, suffix


def test_everything_that_up_keeps_is_private(place: Path) -> None:
    server = LiveServer(place / "data", ("--sample",), {})
    try:
        server.wait_for(r"LUCIUS stays up at", 120)
        assert {"lucius.db", "lucius.db-wal", "services", "files"} <= {path.name for path in server.data.iterdir()}
        _assert_private(server.data)
    finally:
        server.stop()


async def test_a_folder_of_an_earlier_release_is_tightened(place: Path) -> None:
    data = place / "data"
    await _open(data)
    (data / "services").mkdir()
    for path in _all(data):
        path.chmod(0o755 if path.is_dir() else 0o644)
    await _open(data)
    _assert_private(data)


async def test_a_folder_that_others_use_too_is_left_alone(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    foreign = place / "somebody-elses.txt"
    foreign.write_text("hello")
    foreign.chmod(0o644)
    (place / "lucius.db").touch(0o644)
    with caplog.at_level(logging.WARNING, "lucius.data"):
        await _open(place)
    assert (_mode(place), _mode(foreign)) == (0o755, 0o644)
    assert "somebody-elses.txt" in caplog.text
    _assert_unreadable([path for path in place.iterdir() if path != foreign])


async def test_the_ledger_elsewhere_is_private_and_its_folder_is_left_alone(place: Path) -> None:
    path = place / "elsewhere.db"
    path.touch(0o644)
    known = {"api_key": KEY, "callback_keys": CALLBACK_KEYS}
    async with open_app(Settings(data=str(place / "data"), ledger=f"sqlite:///{path}", **known)):
        assert {name.name: oct(_mode(name)) for name in place.glob("elsewhere*")} == {
            f"elsewhere.db{suffix}": "0o600" for suffix in ("", "-wal", "-shm", ".owner")
        }
    assert _mode(place) == 0o755


def test_a_service_leaves_a_folder_that_is_not_its_own_alone(place: Path) -> None:
    (place / "somebody-elses.txt").touch()
    folder = StateFolder(place)
    folder.claim()
    folder.release()
    assert _mode(place) == 0o755
    assert _mode(place / "lock") == 0o600
    own = place / "own"
    own.mkdir(mode=0o755)
    folder = StateFolder(own)
    folder.claim()
    folder.release()
    assert _mode(own) == 0o700


def test_greeting_shows_only_a_key_that_lucius_made_up(place: Path) -> None:
    for name in ("given", "own"):
        (place / name).mkdir()
    given = LiveServer(place / "given" / "data", ("--no-services",), {})
    given.stop()
    assert "API key     as configured" in given.said
    assert KEY not in given.said
    own = LiveServer(place / "own" / "data", ("--no-services",), {"LUCIUS_API_KEY": ""})
    own.stop()
    made = (own.data / "api-key").read_text().strip()
    assert f"API key     {made}" in own.said
