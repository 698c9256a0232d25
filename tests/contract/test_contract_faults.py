"""The kit passes services that are right, and finds each planted defect by its own cases and no others."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kit import Ran, broken, node_service, run_kit
from planted import FAULTS, Planted
from tests.long_form import sized

from lucius.contract.cases import every_case

KITS_AT_ONCE = 8
"""A kit mostly waits: this many keep one core busy."""
PACE = "0.6"
LONG = ("ack-impatient", "dedups-on-step", "ignores-sigterm", "remembers-too-early", "silent-after-cancel")
"""Defects that make the kit wait to the end of more than one deadline."""
TRIED = sorted(FAULTS)[:: sized(2, 1)]
"""The short form tries every second defect."""
QUICK = ("ack-in-time", "result-good", "own-ids", "unknown-fields", "odd-tenant", "large-directive", "bad-input")

Found = dict[str, Any]


def found_by(ran: Ran) -> Found:
    """What is not a pass, and the exit code."""
    if ran.exit_code not in (0, 1):
        return {"exit_code": ran.exit_code, "stderr": ran.stderr}
    others = {name: status for name, status in ran.statuses().items() if status != "PASS"}
    return {"exit_code": ran.exit_code, **others}


def expected_of(planted: Planted) -> Found:
    ends_badly = bool(planted.fails or planted.not_run)
    told = dict.fromkeys(planted.fails, "FAIL")
    told |= dict.fromkeys(planted.advises, "ADVICE") | dict.fromkeys(planted.not_run, "NOT RUN")
    return {"exit_code": int(ends_badly), **told}


def try_fault(name: str) -> Found:
    planted = FAULTS[name]
    own = {*planted.fails, *planted.advises, *planted.not_run, *QUICK}
    chosen = [] if planted.is_full else [word for case in sorted(own) for word in ("--only", case)]
    return found_by(run_kit("--output", "json", "--pace", PACE, *chosen, service=broken(name)))


def try_correct(name: str) -> Found:
    service = node_service() if name == "node" else broken()
    return found_by(run_kit("--output", "json", service=service))


@pytest.mark.timeout(600)
def test_right_services_pass_and_each_defect_is_found_by_its_own_cases() -> None:
    load_at_start = os.getloadavg()[0]
    with ThreadPoolExecutor(KITS_AT_ONCE) as pool:
        # The long runs go first, so that the short ones fill the gaps.
        right = {name: pool.submit(try_correct, name) for name in ("python", "node")}
        names = sorted(TRIED, key=lambda name: (name not in LONG, not FAULTS[name].is_full))
        faulty = {name: pool.submit(try_fault, name) for name in names}
        found = {name: one.result() for name, one in (right | faulty).items()}
    # The example in Node keeps no RESULT over a crash, and is told so.
    expected = {"python": {"exit_code": 0}, "node": {"exit_code": 0, "crash-before-answer": "ADVICE"}}
    expected |= {name: expected_of(FAULTS[name]) for name in names}
    wrong = {name: (found[name], expected[name]) for name in expected if found[name] != expected[name]}
    assert not wrong, f"found and expected differ; the machine's load was {load_at_start:.1f} at the start"


def test_every_case_has_a_defect_that_it_finds() -> None:
    finding = {name for planted in FAULTS.values() for name in (*planted.fails, *planted.advises)}
    assert {case.id for case in every_case()} == finding


def test_defects_name_cases_that_exist() -> None:
    known = {case.id for case in every_case()}
    for name, planted in FAULTS.items():
        assert {*planted.fails, *planted.advises, *planted.not_run} <= known, name
        assert planted.fails or planted.advises, name
