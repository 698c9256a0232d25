"""Many jobs through everything that can go wrong, on `decide` alone: each ends, in time, with the invariants kept."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.domain.job import JobStatus
from lucius.testing.simulator import NO_FAULTS, Faults, Simulation

JOBS = 300


@pytest.mark.parametrize("seed", range(8))
def test_simulation_ends_every_job_whatever_goes_wrong(seed: int) -> None:
    simulation = Simulation(seed, JOBS, Faults())
    simulation.run()
    simulation.check()
    assert len(simulation.jobs) == JOBS
    statuses = Counter(job.status for job in simulation.jobs.values())
    assert set(statuses) == {JobStatus.SUCCEEDED, JobStatus.FAILED_FINAL, JobStatus.CANCELLED}
    assert statuses[JobStatus.SUCCEEDED] > JOBS / 2
    assert set(simulation.outcomes) >= {Outcome.APPLIED, Outcome.DUPLICATE, Outcome.STALE_ATTEMPT, Outcome.IGNORED}


def test_simulation_without_faults_takes_one_attempt_per_step() -> None:
    simulation = Simulation(1, JOBS, NO_FAULTS)
    simulation.run()
    simulation.check()
    for job in simulation.jobs.values():
        assert job.status is JobStatus.SUCCEEDED
        assert job.attempts_total == len(job.steps)


def test_simulation_is_the_same_for_the_same_seed() -> None:
    runs = [Simulation(7, 60, Faults()) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].jobs == runs[1].jobs
    assert runs[0].trails == runs[1].trails


@pytest.mark.parametrize(
    "faults",
    [
        replace(NO_FAULTS, publish_unreachable=0.97),
        replace(NO_FAULTS, message_lost=1.0),
        replace(NO_FAULTS, worker_died=1.0),
        replace(NO_FAULTS, process_died=0.9),
        replace(NO_FAULTS, rate_limited=1.0),
        replace(NO_FAULTS, publish_refused=1.0),
        replace(NO_FAULTS, paused=1.0, never_resumed=1.0),
        replace(NO_FAULTS, slow_step=1.0, clock_skew_seconds=30.0),
        replace(NO_FAULTS, callback_lost=0.7, callback_doubled=1.0),
    ],
)
def test_simulation_ends_every_job_when_one_thing_never_works(faults: Faults) -> None:
    simulation = Simulation(3, 60, faults)
    simulation.run()
    simulation.check()
