"""Two instances of a service that got the same directive: the first to acknowledge has the attempt."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.testing.samples import ManualClock
from lucius.testing.scribe import ack, heartbeat
from lucius.testing.story import Story


def test_ack_of_another_instance_is_stale() -> None:
    story = Story(ManualClock())
    first = replace(ack(story.job), acked_by="one")
    assert story.tell(first).outcome is Outcome.APPLIED
    assert story.job.current_step.attempt is not None
    assert story.job.current_step.attempt.acked_by == "one"
    assert story.tell(replace(first, acked_by="two")).outcome is Outcome.STALE_ATTEMPT
    assert story.tell(first).outcome is Outcome.DUPLICATE
    assert story.job.current_step.attempt.acked_by == "one"


def test_ack_without_a_name_is_a_duplicate_as_ever() -> None:
    for first, second in (("one", None), (None, "two")):
        story = Story(ManualClock())
        said = ack(story.job)
        story.tell(replace(said, acked_by=first))
        assert story.tell(replace(said, acked_by=second)).outcome is Outcome.DUPLICATE


def test_pick_up_by_heartbeat_is_nobodys_in_particular() -> None:
    story = Story(ManualClock())
    story.tell(heartbeat(story.job))
    assert story.tell(replace(ack(story.job), acked_by="one")).outcome is Outcome.DUPLICATE
