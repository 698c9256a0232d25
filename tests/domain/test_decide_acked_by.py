"""Two instances of a service that got the same directive: the first to acknowledge has the attempt."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, heartbeat
from lucius.testing.samples import ManualClock


def test_ack_of_another_instance_is_stale() -> None:
    scenario = JobScenario(ManualClock())
    first = replace(ack(scenario.job), acked_by="one")
    assert scenario.tell(first).outcome is Outcome.APPLIED
    assert scenario.job.current_step.attempt is not None
    assert scenario.job.current_step.attempt.acked_by == "one"
    assert scenario.tell(replace(first, acked_by="two")).outcome is Outcome.STALE_ATTEMPT
    assert scenario.tell(first).outcome is Outcome.DUPLICATE
    assert scenario.job.current_step.attempt.acked_by == "one"


def test_ack_without_a_name_is_a_duplicate_as_ever() -> None:
    for first, second in (("one", None), (None, "two")):
        scenario = JobScenario(ManualClock())
        said = ack(scenario.job)
        scenario.tell(replace(said, acked_by=first))
        assert scenario.tell(replace(said, acked_by=second)).outcome is Outcome.DUPLICATE


def test_ack_that_overtakes_the_one_of_the_instance_that_has_the_attempt_is_stale() -> None:
    scenario = JobScenario(ManualClock())
    first = replace(ack(scenario.job), acked_by="one")
    assert scenario.tell(replace(first, acked_by="two", held_by="one")).outcome is Outcome.STALE_ATTEMPT
    assert scenario.tell(first).outcome is Outcome.APPLIED
    assert scenario.job.current_step.attempt is not None
    assert scenario.job.current_step.attempt.acked_by == "one"


def test_pick_up_by_heartbeat_is_nobodys_in_particular() -> None:
    scenario = JobScenario(ManualClock())
    scenario.tell(heartbeat(scenario.job))
    assert scenario.tell(replace(ack(scenario.job), acked_by="one")).outcome is Outcome.DUPLICATE
