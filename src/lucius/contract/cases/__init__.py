"""The cases by theme; importing a theme registers its cases."""

from __future__ import annotations

from lucius.contract.case import CASES, Case
from lucius.contract.cases import acks, delivery, duplicates, lease, life, refusals, results

THEMES = (delivery, duplicates, acks, results, refusals, lease, life)


def every_case() -> list[Case]:
    """In the order in which they run: basic requirements first."""
    order = [theme.__name__.rpartition(".")[2] for theme in THEMES]
    return sorted(CASES, key=lambda case: order.index(case.theme))
