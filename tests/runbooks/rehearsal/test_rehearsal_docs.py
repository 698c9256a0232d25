"""The page about rehearsals: its files are read, its plan is the one that is printed, its defaults are the code's."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from lucius.cli.runbooks.rehearsal import plan
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.rehearsal.behaviour import SLOW_FACTOR, USUAL, Behaviour, read_behaviour

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "rehearse-a-runbook.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_plan_on_the_page_is_the_one_that_is_printed(tmp_path: Path) -> None:
    (tmp_path / "move.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "people.csv").write_text(blocks("csv")[0])
    arguments = [str(tmp_path / "move.yaml"), "--members", str(tmp_path / "people.csv")]
    ended = CliRunner().invoke(plan, [*arguments, *blocks("bash")[0].split()[6:]])
    assert ended.exit_code == 3
    assert blocks("text")[0] in ended.stdout
    assert "dora" in ended.stdout


def test_the_behaviour_on_the_page_can_be_read_and_names_functions_of_the_runbook() -> None:
    behaviour = read_behaviour(blocks("yaml")[1].encode())
    steps = read_runbook(blocks("yaml")[0].encode()).steps
    assert set(behaviour.functions) <= {step.function for step in steps}
    assert set(behaviour.workers_of) <= {step.worker_id for step in steps}


def test_the_defaults_on_the_page_are_the_codes() -> None:
    words = {2: "twice", 4: "four times"}
    for part in (
        f"take {USUAL.duration_seconds:g} s a job",
        f"{SLOW_FACTOR} times as long for {USUAL.slow * 100:g} % of the steps",
        f"fail {USUAL.fail * 100:g} % of the jobs",
        f"throttled in {USUAL.throttle * 100:g} %",
        f"never answer {USUAL.lost * 100:g} %",
        f"say {words[USUAL.poll_rounds]} that",
        f"work on {Behaviour().workers} jobs at once",
    ):
        assert part in PAGE
