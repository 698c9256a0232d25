"""A file is read for members only once it has been still, and only if it ends with a whole line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lucius.runbooks.core.definition.model import DataSource
from lucius.runbooks.sources.deadline import Stop
from lucius.runbooks.sources.files import FileStamps, Stillness, read_bytes
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.reading import preview, read_source, read_source_members

SOURCE = DataSource(type="csv", connection="MEMBERS_CSV", primary_key="id")
WHOLE = b"id,v\na,1\nb,2\n"
SECONDS = 2.0


class Pauses:
    """Stands for time that passes, and for what somebody does to the file meanwhile."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.asked: list[float] = []
        self._meanwhile = meanwhile

    def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._meanwhile()


def read(path: Path, pauses: Pauses, stamps: FileStamps | None = None) -> bytes:
    return read_bytes(path, [], "MEMBERS_CSV", 1_000, Stillness(stamps or FileStamps(), SECONDS, pauses))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "members.csv"
    found.write_bytes(WHOLE)
    return found


def test_a_file_that_is_new_is_waited_for(path: Path) -> None:
    pauses = Pauses()
    assert read(path, pauses) == WHOLE
    assert pauses.asked == [pytest.approx(SECONDS, abs=0.5)]


def test_a_file_that_has_not_changed_is_waited_for_only_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps, now = FileStamps(), [100.0]
    monkeypatch.setattr("lucius.runbooks.sources.files.monotonic", lambda: now[0])
    pauses = Pauses()
    for seconds in (0.5, 60.0, 0.0):
        read(path, pauses, stamps)
        now[0] += seconds
    assert pauses.asked == [SECONDS, SECONDS - 0.5, SECONDS - 60.5]
    path.write_bytes(WHOLE + b"c,3\n")
    read(path, pauses, stamps)
    assert pauses.asked[-1] == SECONDS


def replaced(path: Path) -> None:
    other = path.with_name("new.csv")
    other.write_bytes(WHOLE)
    other.replace(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "more was written": lambda path: path.write_bytes(WHOLE + b"c,3\n"),
    "it was cut": lambda path: os.truncate(path, 9),
    "it was written over in place": lambda path: path.write_bytes(WHOLE.replace(b"2", b"3")),
    "it was written over and its time put back": lambda path: (path.write_bytes(WHOLE), os.utime(path, (1, 1))),
    "another took its place": replaced,
    "it is gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_meanwhile_is_not_read(path: Path, change: str) -> None:
    with pytest.raises(SourceError, match=r"is being written|cannot be read") as caught:
        read(path, Pauses(lambda: CHANGES[change](path)))
    assert "MEMBERS_CSV" in str(caught.value)


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_file_must_end_with_a_whole_line(path: Path, cut: int) -> None:
    path.write_bytes(WHOLE[:cut])
    if WHOLE[:cut].endswith(b"\n"):
        assert read(path, Pauses()) == WHOLE[:cut]
        return
    with pytest.raises(SourceError, match="that MEMBERS_CSV names has no line break at its end") as caught:
        read(path, Pauses())
    assert "if it is complete, end it with a line break" in str(caught.value)


def test_a_pause_ends_with_the_time_there_is() -> None:
    with pytest.raises(SourceError, match="ran longer than"):
        Stop(0.05).pause(60.0)


async def test_only_members_are_read_with_such_care(path: Path) -> None:
    """A preview and a dry run change nobody, so they show what is there."""
    path.write_bytes(WHOLE[:-1])
    environ, limits = {"MEMBERS_CSV": str(path)}, SourceLimits(still_seconds=0.0)
    assert len((await preview(SOURCE, environ, limits, [])).rows) == 2
    assert len((await read_source(SOURCE, environ, limits, [])).rows) == 2
    assert len((await read_source_members(SOURCE, environ, limits, [])).members) == 2
    with pytest.raises(SourceError, match="no line break"):
        await read_source_members(SOURCE, environ, limits, [], FileStamps())
