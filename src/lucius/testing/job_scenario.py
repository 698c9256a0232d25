"""A job driven fact by fact through `decide`, with the invariants checked after each decision."""

from __future__ import annotations

from typing import Any

from lucius.domain.decide import decide
from lucius.domain.effects import Decision
from lucius.domain.inputs import DeadlinePassed, Input
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.testing.invariants import check_decision
from lucius.testing.samples import ManualClock, accepted


class JobScenario:
    """A job and its decisions, each checked against the invariants."""

    def __init__(self, clock: ManualClock, **wishes: Any) -> None:
        self.clock = clock
        self.leases: set[str] = set()
        fact = accepted(clock, **wishes)
        self.last = decide(None, fact, clock.now(), clock)
        check_decision(None, fact, self.last, self.leases)

    @property
    def job(self) -> Job:
        return self.last.job

    @property
    def step(self) -> StepStatus:
        return self.job.current_step.status

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.last.events]

    def tell(self, *facts: Input) -> Decision:
        for fact in facts:
            before = self.job
            self.last = decide(before, fact, self.clock.now(), self.clock)
            check_decision(before, fact, self.last, self.leases)
        return self.last

    def wait(self, seconds: float, fact: Input | None = None) -> Decision:
        """Let time pass and the timer fire."""
        self.clock.advance(seconds)
        return self.tell(fact or DeadlinePassed())
