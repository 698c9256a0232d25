"""Which of a policy's backoffs are used: the one after the last attempt never is, for nothing follows it."""

from __future__ import annotations

import pytest

from lucius.domain.attempt import Verdict
from lucius.domain.job import JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.time import Instant
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import result
from lucius.testing.samples import ManualClock


@pytest.mark.parametrize(
    ("max_attempts", "used"), [(1, []), (3, [30, 120]), (4, [30, 120, 600]), (6, [30, 120, 600, 600, 600])]
)
def test_backoffs_lie_between_two_attempts(clock: ManualClock, max_attempts: int, used: list[int]) -> None:
    """With the default of three attempts, the third backoff is for policies that allow a fourth."""
    clock._jitter = 0.0
    scenario = JobScenario(clock, steps=["ocr"], policy=Policy(max_attempts=max_attempts))
    waited: list[float] = []
    while True:
        scenario.tell(result(scenario.job, Verdict.FAILED))
        due_at: Instant | None = scenario.job.current_step.due_at
        if due_at is None:
            break
        waited.append((due_at - clock.now()) / 1000)
        scenario.wait(waited[-1])
    assert waited == used
    assert scenario.job.status is JobStatus.FAILED_FINAL
    assert scenario.job.attempts_total == max_attempts
