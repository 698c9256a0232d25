"""Counting and percentiles, without a server."""

from __future__ import annotations

import random

import pytest

from lucius.client.errors import Refused, Unreachable
from lucius.load.account import Account, Samples, ServicesAccount
from lucius.load.halt import Halt
from lucius.load.plan import LoadPlan, Mix
from lucius.load.report import ending_of, lines_of, report_of


def test_percentiles_are_measured_values_by_nearest_rank() -> None:
    samples = Samples()
    for value in random.Random(1).sample(range(1, 201), 200):
        samples.add(value)
    assert [samples.percentile(percent) for percent in (50, 90, 95, 99, 100)] == [100, 180, 190, 198, 200]
    samples.add(1_000.0)
    assert samples.percentile(100) == 1_000.0
    assert samples.percentile(0) == 1


def test_percentiles_of_one_and_of_no_sample() -> None:
    samples = Samples()
    assert samples.percentile(50) is None
    assert samples.in_milliseconds() == {"count": 0, "p50": None, "p90": None, "p95": None, "p99": None, "max": None}
    samples.add(0.0123456)
    assert samples.in_milliseconds() == {
        "count": 1,
        "p50": 12.35,
        "p90": 12.35,
        "p95": 12.35,
        "p99": 12.35,
        "max": 12.35,
    }


def test_account_counts_from_the_moment_a_command_was_meant_for() -> None:
    account = Account()
    account.submit(10.0)
    account.refuse("TENANT_SATURATED")
    account.accept(meant_at=9.0, at=12.0)
    account.submit(11.0)
    account.accept(meant_at=11.0, at=13.0)
    assert (account.in_flight, account.in_flight_max) == (2, 2)
    account.end("SUCCEEDED", 2, meant_at=9.0, at=14.0)
    account.end("FAILED_FINAL", 0, meant_at=11.0, at=14.5)
    assert (account.in_flight, account.in_flight_max, account.retries) == (0, 2, 2)
    assert account.acceptance.percentile(100) == 3.0
    assert account.whole.percentile(100) == 5.0
    assert account.seconds() == 4.5
    assert account.jobs_per_second() == pytest.approx(2 / 4.5)


def test_account_is_stalled_only_while_something_is_under_way() -> None:
    account = Account()
    assert account.stalled_seconds(100.0) == 0.0
    account.submit(100.0)
    assert account.stalled_seconds(130.0) == 30.0
    account.accept(100.0, 130.0)
    assert account.stalled_seconds(131.0) == 1.0
    account.end("SUCCEEDED", 0, 100.0, 140.0)
    assert account.stalled_seconds(900.0) == 0.0
    account.submit(900.0)
    assert account.stalled_seconds(901.0) == 1.0


def test_ending_says_why_a_run_was_not_complete() -> None:
    account, halt = Account(), Halt()
    account.submit(1.0)
    assert ending_of(halt, account) == "INCOMPLETE"
    account.accept(1.0, 1.0)
    account.end("FAILED_FINAL", 0, 1.0, 2.0)
    assert ending_of(halt, account) == "COMPLETE"
    halt.stall()
    assert ending_of(halt, account) == "INCOMPLETE"
    for stop, ending in ((Unreachable("gone", True), "UNREACHABLE"), (Refused("HTTP_401", ""), "REFUSED")):
        halt = Halt()
        halt.fail(stop)
        halt.interrupt()
        assert ending_of(halt, account) == ending, "the first reason stands"
        assert halt.at_once


def test_report_has_its_keys_and_its_lines_say_the_same() -> None:
    account, services = Account(), ServicesAccount()
    for number in range(3):
        account.submit(float(number))
    account.accept(0.0, 0.5)
    account.accept(1.0, 1.25)
    account.end("SUCCEEDED", 1, 0.0, 2.0)
    account.refuse("RATE_LIMITED")
    services.directives["ocr"] += 4
    services.verdicts["failed_final"] += 1
    services.outcomes["RESULT"]["APPLIED"] += 4
    plan = LoadPlan(jobs=3, seed=7, rate=2.0, services=Mix(work_ms=(1, 2), fail_final=5.0))
    report = report_of(plan, "OCR", account, services, Halt(), unsent=2, busy=0.9)
    assert list(report) == [
        "ending", "plan", "jobs", "seconds", "jobs_per_second", "in_flight_max", "latency_ms", "look_ms",
        "busy_percent", "refused", "retried_calls", "retries", "services",
    ]  # fmt: skip
    assert report["jobs"] == {
        "submitted": 3, "accepted": 2, "ended": {"SUCCEEDED": 1}, "ended_total": 1, "open": 1, "not_accepted": 1,
        "unsent": 2,
    }  # fmt: skip
    assert report["plan"]["mix"]["work_ms"] == [1, 2]
    text = "\n".join(lines_of(report))
    for told in ("3 submitted, 2 accepted, 1 ended", "1 still open, 1 never accepted, 2 due and never sent", "90 %"):
        assert told in text
    for told in ("1 RATE_LIMITED", "1 failed final", "4 APPLIED", "0.5 jobs/s", "seed 7"):
        assert told in text
