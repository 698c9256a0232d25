"""The cases by theme; importing a theme registers its cases."""

from __future__ import annotations

from lucius.contract.case import CASES, Case
from lucius.contract.cases import acks, delivery, duplicates, lease, life, refusals, results

THEMES = (delivery, duplicates, acks, results, refusals, lease, life)


OF_PULLS = frozenset({"idle", "pull-unavailable", "pull-refused"})
"""Cases about pulls over HTTP."""
OF_ANSWERS = frozenset({"cancel-at-ack", "crash-before-ack", "crash-before-answer"})
"""Cases about the answers to ACK and RESULT, besides the themes that are all about them."""
THEMES_OF_ANSWERS = frozenset({"acks", "results", "refusals"})


def is_played(case: Case, over_bus: bool, answers_over_bus: bool) -> bool:
    """Whether a case makes sense if directives, and if callbacks too, travel over the bus."""
    if over_bus and case.id in OF_PULLS:
        return False
    return not (answers_over_bus and (case.id in OF_ANSWERS or case.theme in THEMES_OF_ANSWERS))


def every_case() -> list[Case]:
    """In the order in which they run: basic requirements first."""
    order = [theme.__name__.rpartition(".")[2] for theme in THEMES]
    return sorted(CASES, key=lambda case: order.index(case.theme))
