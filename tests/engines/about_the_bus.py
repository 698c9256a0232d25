"""What in the engine suite is most about the bus: what the short form runs on a bus that costs much time."""

from __future__ import annotations

from lucius.testing.engine_suite import EngineSuite


class AboutTheBus:
    knows_what_is_queued = EngineSuite.knows_what_is_queued
    test_job_goes_through_its_steps_and_succeeds = EngineSuite.test_job_goes_through_its_steps_and_succeeds
    test_publish_whose_answer_was_lost_is_delivered_once = (
        EngineSuite.test_publish_whose_answer_was_lost_is_delivered_once
    )
    test_backlog_burns_no_attempts = EngineSuite.test_backlog_burns_no_attempts
    test_engine_that_dies_between_commit_and_publish_loses_nothing = (
        EngineSuite.test_engine_that_dies_between_commit_and_publish_loses_nothing
    )
