"""A small Temporal engine: a workflow that holds a job and asks `decide`. The seam that the real one will grow from.

The workflow is deterministic because everything fresh comes from the workflow's own clock and dice; what goes over the
wire is JSON.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    import msgspec

    from lucius.domain.decide import decide
    from lucius.domain.effects import Event, PublishDirective
    from lucius.domain.inputs import Accepted, Acked, DeadlinePassed, Input, Published, Resulted
    from lucius.domain.job import Job, JobSpec
    from lucius.domain.step import StepSpec

CLAIM_SECONDS = 30.0


class Outcome(msgspec.Struct):
    """What a workflow hands back when its job has ended."""

    job: Job
    events: list[Event]
    decisions: int


class WorkflowFresh:
    """What is new in the world, from the workflow's own sources: the same again when its history is replayed."""

    claim_seconds = CLAIM_SECONDS
    publishes_inside = False

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return False

    def lease_id(self) -> str:
        return workflow.uuid4().hex

    def jitter(self) -> float:
        return workflow.random().random()


@activity.defn
async def publish_to_bus(directive: str) -> None:
    """Replaced in the worker by one that has a bus."""
    raise NotImplementedError(directive)


@workflow.defn
class JobWorkflow:
    def __init__(self) -> None:
        self._inbox: list[Input] = []
        self._job: Job | None = None
        self._events: list[Event] = []
        self._decisions = 0

    @workflow.signal
    def step_ack(self, text: str) -> None:
        self._inbox.append(msgspec.json.decode(text, type=Acked))

    @workflow.signal
    def step_result(self, text: str) -> None:
        self._inbox.append(msgspec.json.decode(text, type=Resulted))

    @workflow.query
    def state(self) -> str:
        return msgspec.json.encode(self._job).decode()

    @workflow.run
    async def run(self, accepted: str) -> str:
        await self._tell(msgspec.json.decode(accepted, type=Accepted))
        assert self._job is not None
        while not self._job.is_terminal:
            await self._wait()
            facts, self._inbox = self._inbox, []
            # Deadlines are hints: callbacks that have arrived come first.
            for fact in [*facts, DeadlinePassed()]:
                await self._tell(fact)
        outcome = Outcome(self._job, self._events, self._decisions)
        return msgspec.json.encode(outcome).decode()

    async def _wait(self) -> None:
        """Until something arrives, or the job's one timer fires."""
        assert self._job is not None
        assert self._job.wake_at is not None
        left = max(0, self._job.wake_at - _now())
        try:
            await workflow.wait_condition(lambda: bool(self._inbox), timeout=timedelta(milliseconds=left))
        except TimeoutError:
            return

    async def _tell(self, fact: Input) -> None:
        decision = decide(self._job, fact, _now(), WorkflowFresh())
        self._decisions += 1
        self._job = decision.job
        self._events += decision.events
        for effect in decision.effects:
            if isinstance(effect, PublishDirective):
                await self._publish(effect.step_index)

    async def _publish(self, index: int) -> None:
        assert self._job is not None
        step = self._job.steps[index]
        assert step.attempt is not None
        directive = {
            "jobId": self._job.job_id,
            "stepId": step.spec.step_id,
            "attempt_no": step.attempt.attempt_no,
            "lease_id": step.attempt.lease_id,
        }
        await workflow.execute_local_activity(
            publish_to_bus, msgspec.json.encode(directive).decode(), start_to_close_timeout=timedelta(seconds=10)
        )
        await self._tell(Published(step.spec.step_id, step.attempt.attempt_no))


def _now() -> int:
    return round(workflow.now().timestamp() * 1000)
