"""The page of cases says what the code says, and the kit's texts can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lucius.contract.case import Case
from lucius.contract.cases import every_case

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "contract.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]


def test_the_page_has_every_case_in_the_order_in_which_they_run() -> None:
    assert [row[0].strip("`") for row in rows()] == [case.id for case in every_case()]


@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.id)
def test_the_page_says_what_the_case_checks_and_catches(case: Case) -> None:
    (row,) = [row for row in rows() if row[0] == f"`{case.id}`"]
    needs = [name for name, is_so in (("slow work", case.needs_slow_work), ("COMMAND", case.needs_command)) if is_so]
    assert row[1:] == [case.level.value, ", ".join(needs) or "–", case.checks, case.catches]


@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.id)
def test_the_case_says_why_and_what_to_do_in_sentences(case: Case) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", case.id)
    for text in (case.why, case.remedy):
        assert text[0].isupper()
        assert text.endswith(".")
        assert "  " not in text
    assert not case.checks.endswith(".")
    assert "|" not in case.checks + case.catches
