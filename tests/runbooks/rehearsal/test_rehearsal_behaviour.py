"""How simulated workers behave: files, shares, chance, queues."""

from __future__ import annotations

import pytest

from lucius.runbooks.rehearsal.behaviour import (
    USUAL,
    Behaviour,
    BehaviourInvalid,
    Mix,
    draw,
    parse_share,
    read_behaviour,
)
from lucius.runbooks.rehearsal.pool import Job, Pool

FILE = b"""
workers: {mail: 5}
default: {duration: 1m, fail: 10%, poll_rounds: 2}
functions:
  Move: {fail: 50%, throttle: 0.5%, slow: 0%}
"""


def job(number: int, function: str = "F", poll_count: int = 0, is_poll_step: bool = False, sent_at: int = 0) -> Job:
    return Job(f"step-{number}-a1", "step", number, "w", function, sent_at, is_poll_step, poll_count, ("guid",))


def test_a_file_gives_what_it_says_and_leaves_the_rest_as_usual() -> None:
    read = read_behaviour(FILE)
    assert (read.default.duration_seconds, read.default.fail, read.default.lost) == (60.0, 0.1, USUAL.lost)
    move = read.of("Move")
    assert (move.duration_seconds, move.fail, move.throttle, move.slow, move.poll_rounds) == (60.0, 0.5, 0.005, 0.0, 2)
    assert read.of("Other") == read.default
    assert (read.slots("mail"), read.slots("cloud")) == (5, 50)


def test_options_go_before_the_default_of_a_file_but_not_before_a_function() -> None:
    read = read_behaviour(FILE, {"fail": 0.0, "workers": 7, "duration_seconds": 5.0})
    assert (read.default.fail, read.of("Move").fail, read.of("Move").duration_seconds) == (0.0, 0.5, 5.0)
    assert (read.slots("mail"), read.slots("cloud")) == (5, 7)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "mapping"),
        (b"defaults: {}", "/defaults is unknown"),
        (b"default:\n  fail: 101%", "line 1: /default: '101%' is not a share"),
        (b"default: {lost: -1%}", "'-1%' is not a share"),
        (b"default: {duration: soon}", "not a duration"),
        (b"default: {poll_rounds: many}", "poll_rounds must be a whole number"),
        (b"functions: {Move: {fails: 1%}}", "/functions/Move/fails is unknown"),
        (b"workers: 0", "workers must be a whole number from 1"),
        (b"workers: {mail: x}", "mail must be a whole number from 1"),
        (b"a: &b 1", "anchors"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(content: bytes, said: str) -> None:
    with pytest.raises(BehaviourInvalid) as refused:
        read_behaviour(content)
    assert said in str(refused.value)
    assert "line " in str(refused.value) or said == "mapping"


def test_shares_are_percentages_or_numbers_up_to_one() -> None:
    assert [parse_share(text) for text in ("2%", "0.5 %", "100%", 0, 0.25, 1)] == [0.02, 0.005, 1.0, 0.0, 0.25, 1.0]
    for text in ("2", "-1%", "x%", True, 1.5, "nan%"):
        with pytest.raises(BehaviourInvalid):
            parse_share(text)


def test_chance_keeps_to_its_shares_and_to_its_seed() -> None:
    mix = Mix(fail=0.2, throttle=0.1, lost=0.05, slow=0.1, duration_seconds=10)
    draws = [draw(1, f"step-{n}", f"step-{n}-a1", mix) for n in range(4_000)]
    assert draws == [draw(1, f"step-{n}", f"step-{n}-a1", mix) for n in range(4_000)]
    assert draws != [draw(2, f"step-{n}", f"step-{n}-a1", mix) for n in range(4_000)]
    shares = {name: sum(one.ending == name for one in draws) / 4_000 for name in ("fail", "throttle", "lost")}
    assert shares["fail"] == pytest.approx(0.2, abs=0.03)
    assert shares["throttle"] == pytest.approx(0.1, abs=0.03)
    assert shares["lost"] == pytest.approx(0.05, abs=0.02)
    slow = [one for one in draws if one.is_slow]
    assert len(slow) / 4_000 == pytest.approx(0.1, abs=0.03)
    usual = sorted(one.duration_seconds for one in draws if not one.is_slow)
    assert usual[len(usual) // 2] == pytest.approx(10, rel=0.1)
    assert sorted(one.duration_seconds for one in slow)[len(slow) // 2] == pytest.approx(200, rel=0.3)


def test_who_always_fails_does_so_whatever_else_may_happen() -> None:
    mix = Mix(fail=1.0, throttle=1.0, lost=1.0)
    assert {draw(1, f"step-{n}", f"step-{n}-a1", mix).ending for n in range(500)} == {"fail"}


def test_a_pool_works_on_so_many_at_once_and_the_rest_waits() -> None:
    pool = Pool(Behaviour(workers=2), 1)
    pool.take([job(n) for n in range(6)], 0)
    busy = pool.busy[0]
    assert (busy.in_flight_max, busy.queue_max) == (2, 4)
    assert (pool.busiest.in_flight, pool.busiest.queued) == (2, 4)
    answers = pool.advance(10**9)
    assert len(answers) == 6
    assert [one.at for one in answers] == sorted(one.at for one in answers)
    assert busy.wait_max_seconds > 0
    assert pool.next_at is None


def test_a_withdrawn_job_is_not_worked_on_unless_it_was_begun() -> None:
    pool = Pool(Behaviour(workers=1), 1)
    pool.take([job(1), job(2), job(3)], 0)
    pool.withdraw(["step-1-a1", "step-2-a1", "step-9-a1"])
    assert [one.job.execution_id for one in pool.advance(10**9)] == [1, 3]
    assert pool.counts["withdrawn"] == 1


def test_lost_jobs_take_a_worker_and_are_never_answered() -> None:
    pool = Pool(Behaviour(default=Mix(lost=1.0), workers=1), 1)
    pool.take([job(1), job(2)], 0)
    assert pool.advance(10**9) == []
    assert pool.counts["lost"] == 2


def test_a_polled_step_still_runs_for_its_rounds_and_then_ends() -> None:
    pool = Pool(Behaviour(default=Mix(poll_rounds=2)), 1)
    answers = []
    for count in range(3):
        pool.take([job(1, poll_count=count, is_poll_step=True)], 0)
        answers += pool.advance(10**9)
    assert [one.is_running for one in answers] == [True, True, False]
    assert answers[0].result.result == {"complete": False}
    assert answers[2].result.result == {"guid": "guid of step-1"}
    assert answers[1].at < answers[0].at
