"""The page of benchmarks holds what the command writes; a part that fails costs the others nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import consoles, outcomes
from bench.__main__ import measure, wanted_parts
from bench.part import Measured, Options, Part, Row
from bench.parts import PARTS
from bench.processes import BenchError

NAMES = [part.name for part in PARTS]


def options(disk: Path) -> Options:
    return Options(rounds=2, seconds=1.0, quick=False, disk=disk)


def part(name: str, error: Exception | None = None) -> Part:
    def run(_: Options) -> Measured:
        if error is not None:
            raise error
        row = Row("jobs/s", "100", "1.00 ms", "empty POST, 200/s", "50%", "≥ 90", True)
        return Measured([row], f"the detail of {name}", {"rounds": [1, 2]})

    return Part(name, "something", run, lambda _: 1.0)


def test_every_part_has_its_place_on_the_page() -> None:
    page = outcomes.PAGE.read_text()
    for name in (*NAMES, outcomes.SUMMARY):
        assert page.count(f"<!-- {name}:begin -->") == page.count(f"<!-- {name}:end -->") == 1, name


def test_the_pages_table_is_that_of_the_kept_results() -> None:
    kept = outcomes.read_latest()
    assert set(kept) <= set(NAMES)
    if kept:
        assert outcomes.summary(kept) in outcomes.PAGE.read_text()


def test_a_part_that_fails_says_so_and_keeps_its_earlier_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latest, page = tmp_path / "latest.json", tmp_path / "page.md"
    marks = ("summary", "one", "two", "three")
    page.write_text("".join(f"<!-- {name}:begin -->\nnothing\n<!-- {name}:end -->\n" for name in marks))
    parts = [part("one"), part("two"), part("three", BenchError("it | broke"))]
    found = measure([(each, ()) for each in parts], options(tmp_path))
    outcomes.keep(found, list(marks[1:]), latest, page)
    assert "three failed: it | broke" in capsys.readouterr().err
    assert "| **three**: not measured | it / broke |" in page.read_text()

    parts = [part("two", RuntimeError("a defect")), part("three")]
    found = measure([(each, ()) for each in parts], options(tmp_path))
    assert "RuntimeError: a defect" in (found["two"].error or "")
    outcomes.keep(found, list(marks[1:]), latest, page)
    kept = outcomes.read_latest(latest)
    assert list(kept) == ["one", "two", "three"]
    assert all(one.found is not None for one in kept.values())
    text = page.read_text()
    assert "| jobs/s | 100 | 1.00 ms | empty POST, 200/s | 50% | ≥ 90 | yes |" in text
    assert "the detail of two" in text
    assert "not measured" not in text


def test_consoles_are_compared_round_by_round_and_kept_in_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round is on a machine half as fast: the medians of each side would say something else."""
    rounds = [
        {consoles.NONE: (1.0, 1_000.0), consoles.STREAMS: (1.0, 990.0), consoles.READING: (1.1, 950.0)},
        {consoles.NONE: (2.0, 500.0), consoles.STREAMS: (2.0, 500.0), consoles.READING: (2.4, 400.0)},
        {consoles.NONE: (1.0, 1_000.0), consoles.STREAMS: (1.0, 1_010.0), consoles.READING: (1.05, 980.0)},
    ]
    monkeypatch.setattr(consoles, "measure", lambda options: rounds)
    latest, page = tmp_path / "latest.json", tmp_path / "page.md"
    page.write_text(
        "".join(f"<!-- {name}:begin -->\nnothing\n<!-- {name}:end -->\n" for name in ("summary", "consoles"))
    )
    outcomes.keep(measure([(consoles.PART, ())], options(tmp_path)), ["consoles"], latest, page)
    kept = outcomes.read_latest(latest)["consoles"].found
    assert kept is not None
    spent, left = kept.rows[2:]
    assert (spent.ratio, spent.goal, spent.reached) == ("110%", "≤ 110%", True)
    assert (left.figure, left.ratio, left.goal, left.reached) == ("950", "95%", "≥ 90%", True)
    assert kept.data[1][consoles.READING] == [2.4, 400.0]
    text = page.read_text()
    assert "| jobs/s with 100 open consoles, consoles that read what changed | 950 |" in text
    assert "| consoles that read what changed | 1.10 ms | 110% (105% to 120%) | 950 | 95% (80% to 98%) |" in text


def test_parts_are_chosen_by_name_and_by_side() -> None:
    without_another_version = [each.name for each, _ in wanted_parts(None, ["million"], has_before=False)]
    assert without_another_version == [name for name in NAMES if name not in ("million", "versions")]
    assert [(each.name, sides) for each, sides in wanted_parts(["buses:nats,sql"], [], has_before=False)] == [
        ("buses", ("nats", "sql"))
    ]
    for wrong in (["nothing"], ["buses:nothing"], ["versions"]):
        with pytest.raises(BenchError):
            wanted_parts(wrong, [], has_before=False)
    with pytest.raises(BenchError):
        wanted_parts(None, ["nothing"], has_before=False)
