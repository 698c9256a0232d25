"""The reference services pass the contract kit, every MUST and every SHOULD of it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit import Ran, run_kit

OPTIONS = {"ocr": [], "embedding": [], "sis": ["--payload", '{"prompt_set": ["What is this about?"]}']}


def run_on(name: str) -> Ran:
    # The option given last counts: the helper names another service.
    options = ["--service", name, "--step-type", name.upper(), *OPTIONS[name], "--output", "json"]
    return run_kit(*options, service=[sys.executable, "-m", "lucius.cli.main", "platform", name])


@pytest.mark.timeout(500)
def test_reference_services_pass_the_contract() -> None:
    with ThreadPoolExecutor(len(OPTIONS)) as pool:
        ran = dict(zip(OPTIONS, pool.map(run_on, OPTIONS), strict=True))
    for name, one in ran.items():
        wrong = {case: status for case, status in one.statuses().items() if status != "PASS"}
        assert (one.exit_code, wrong) == (0, {}), f"{name}: {one.stdout[-3000:]}\n{one.stderr[-1000:]}"
