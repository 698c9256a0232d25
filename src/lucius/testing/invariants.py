"""The invariants of commands §6, as functions that raise `AssertionError`.

They are written from the specification, not from the tables in `domain/`, so that an error there is found here.
`check_job` checks one aggregate, `check_decision` one decision, `check_ledger` a whole ledger.
"""

from __future__ import annotations

from typing import Any

from lucius.domain.attempt import DispatchStatus
from lucius.domain.effects import Decision, Event, Outcome, PublishDirective, SettleDirective
from lucius.domain.inputs import Acked, HeartbeatSeen, Input, Published, Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.step import Step, StepStatus
from lucius.ports.ledger import JobFilter, Ledger

J, S = JobStatus, StepStatus

ENDED = {J.SUCCEEDED, J.FAILED_FINAL, J.CANCELLED}
STEP_ENDED = {S.SUCCEEDED, S.FAILED_FINAL, S.CANCELLED}
LIVE = {S.DISPATCHING, S.INITIATED, S.PROCESSING}

JOB_NEXT: dict[JobStatus, set[JobStatus]] = {
    J.QUEUED: {J.DISPATCHING, J.IN_PROGRESS, J.PAUSED, J.FAILED_FINAL, J.CANCELLED},
    J.DISPATCHING: {J.IN_PROGRESS, J.PAUSED, J.CANCELLING, *ENDED},
    J.IN_PROGRESS: {J.PAUSED, J.CANCELLING, *ENDED},
    J.PAUSED: {J.QUEUED, J.DISPATCHING, J.IN_PROGRESS, J.CANCELLING, *ENDED},
    J.CANCELLING: {J.CANCELLED},
}
"""The transitions that one input may cause in a job."""

STEP_NEXT: dict[StepStatus, set[StepStatus]] = {
    S.PENDING: {S.DISPATCHING, S.CANCELLED},
    S.DISPATCHING: {S.INITIATED, S.PROCESSING, S.FAILED_RETRY, *STEP_ENDED},
    S.INITIATED: {S.PROCESSING, S.FAILED_RETRY, *STEP_ENDED},
    S.PROCESSING: {S.FAILED_RETRY, *STEP_ENDED},
    S.FAILED_RETRY: {S.DISPATCHING, S.PROCESSING, *STEP_ENDED},
}
"""The transitions that one input may cause in a step."""


def check_job(job: Job) -> None:
    """Check what must always be true of a job."""
    live = [step for step in job.steps if step.status in LIVE]
    assert len(live) <= 1, "at most one step has a live attempt"
    assert not live or live[0] is job.current_step, "the live step is the current one"
    for index, step in enumerate(job.steps):
        _check_step(job, step)
        assert step.status is S.SUCCEEDED or index >= job.current_index, "steps before the current one have succeeded"
        assert index <= job.current_index or step.status in {S.PENDING, S.CANCELLED}, "later steps have not begun"
    if job.status in ENDED:
        assert job.wake_at is None, "a job that has ended waits for nothing"
        assert job.completed_at is not None
        left = [step.status for step in job.steps if step.status not in STEP_ENDED]
        assert job.status is J.FAILED_FINAL or not left, "no step outlives its job"
        assert set(left) <= {S.PENDING}, "steps after one that failed for good never begin"
    else:
        assert job.wake_at is not None, "nothing waits without a timer"
        assert job.wake_at <= job.spec.deadline_at, "a job ends by its deadline"
        assert job.completed_at is None
        assert not job.current_step.is_terminal, "an open job has something left to do"
        _check_clock(job)
    assert (job.status is J.SUCCEEDED) <= all(step.status is S.SUCCEEDED for step in job.steps)
    assert job.dead_letter is (job.status is J.FAILED_FINAL)
    assert (job.error is not None) is (job.status is J.FAILED_FINAL), "a failed job says why, no other does"
    assert job.status is not J.CANCELLING or live, "a job is being cancelled only while an attempt is live"
    assert job.status is not J.QUEUED or job.attempts_total == 0


def _check_step(job: Job, step: Step) -> None:
    policy, attempt = step.spec.policy, step.attempt
    assert 0 <= step.attempts_counted <= policy.max_attempts, "attempts that count never exceed the limit"
    assert (attempt is None) <= (step.status in {S.PENDING, S.CANCELLED}), "a step that began has an attempt"
    if attempt is None:
        return
    assert attempt.attempt_no >= step.attempts_counted
    assert attempt.status == step.status, "the current attempt shows its step's status"
    is_unsent = attempt.dispatch is DispatchStatus.PENDING
    assert is_unsent <= (step.status is S.DISPATCHING), "only a step that is being dispatched has an unsent row"
    assert attempt.is_held <= is_unsent, "only an unsent row is held"
    assert (attempt.sent_at is not None) is (attempt.dispatch is DispatchStatus.SENT)
    assert (step.status is S.INITIATED) <= (attempt.dispatch is DispatchStatus.SENT)
    assert (step.status is S.PROCESSING) <= (attempt.acked_at is not None)
    assert (step.status is S.SUCCEEDED) <= (attempt.verdict == "SUCCEEDED")
    assert (attempt.verdict is not None) <= (step.status not in LIVE), "a RESULT that was applied ends its attempt"
    assert (attempt.ended_at is None) is (step.status in LIVE), "an attempt has ended exactly if it is not live"
    assert step.is_terminal is (step.completed_at is not None)


def _check_clock(job: Job) -> None:
    """Every live step has an unsent row or a deadline, and no wait is too long."""
    step = job.current_step
    assert step.attempt is not None or step.status is S.PENDING
    if step.status is S.DISPATCHING:
        assert step.attempt is not None
        assert step.attempt.dispatch is DispatchStatus.PENDING, "a step being dispatched has an unsent row"
        return
    if step.status in {S.INITIATED, S.PROCESSING}:
        assert step.due_at is not None, "a message on the bus and a lease have a deadline"
        assert job.wake_at == min(step.due_at, job.spec.deadline_at)
    if step.status is S.PROCESSING:
        assert step.ends_by is not None
        assert step.due_at is not None
        assert step.due_at <= step.ends_by, "a lease ends with the step's time"
    if step.status is S.FAILED_RETRY:
        assert step.due_at is not None
        assert job.status is J.PAUSED or job.wake_at == min(step.due_at, job.spec.deadline_at)


def check_decision(before: Job | None, fact: Input, decision: Decision, leases_used: set[str]) -> None:
    """Check one decision. The caller keeps `leases_used` from one decision of a job to the next."""
    after = decision.job
    check_job(after)
    _check_events(before, decision)
    _check_publishing(decision)
    if before is None:
        for step in after.steps:
            if step.attempt is not None:
                leases_used.add(step.attempt.lease_id)
        return
    assert after.spec is before.spec, "what was accepted is never changed"
    assert after.revision == before.revision, "only the ledger increments revisions"
    if before.status in ENDED:
        assert after.status is before.status, "terminal states never change"
        assert [s.status for s in after.steps] == [s.status for s in before.steps]
        assert all(isinstance(effect, SettleDirective) for effect in decision.effects)
    elif after.status is not before.status:
        assert after.status in JOB_NEXT[before.status], f"{before.status} -> {after.status}"
    for old, new in zip(before.steps, after.steps, strict=True):
        _check_step_moved(old, new, fact, leases_used)
    _check_settling(before, decision)
    _check_callback(before, fact, decision)


def _check_settling(before: Job, decision: Decision) -> None:
    """An attempt that has ended has no directive: its ACK settled it, or its end does."""
    for index, (old, new) in enumerate(zip(before.steps, decision.job.steps, strict=True)):
        if old.status in LIVE and new.status not in LIVE:
            assert new.attempt is not None
            is_acked = new.attempt.acked_at is not None
            assert is_acked or SettleDirective(index, new.attempt_no) in decision.effects


def _check_step_moved(old: Step, new: Step, fact: Input, leases_used: set[str]) -> None:
    assert new.spec is old.spec
    if new.status is not old.status:
        assert old.status not in STEP_ENDED, "terminal states never change"
        # If the bus shares the ledger's commit, one decision creates and publishes a new attempt.
        is_sent_at_once = new.attempt_no > old.attempt_no and new.status is S.INITIATED
        assert is_sent_at_once or new.status in STEP_NEXT[old.status], f"{old.status} -> {new.status}"
    if new.attempt is None or new.attempt is old.attempt:
        assert new.attempt_no == old.attempt_no
        return
    if old.attempt is not None and new.attempt.attempt_no == old.attempt.attempt_no:
        assert new.attempt.lease_id == old.attempt.lease_id
        assert new.attempt.created_at == old.attempt.created_at
        if old.attempt.dispatch is not DispatchStatus.PENDING:
            assert new.attempt.dispatch is old.attempt.dispatch, "an outbox row never changes once it was closed"
        elif new.attempt.dispatch is DispatchStatus.SENT:
            assert isinstance(fact, Published | Acked | HeartbeatSeen | Resulted), "SENT only once the bus took it"
        if old.attempt.verdict is not None:
            assert new.attempt.verdict is old.attempt.verdict, "the first RESULT ends its attempt"
        return
    assert new.attempt.attempt_no == old.attempt_no + 1, "attempt_no grows by one"
    assert new.attempt.lease_id not in leases_used, "a lease is never used twice"
    leases_used.add(new.attempt.lease_id)
    assert old.status not in LIVE, "an attempt that is live is not replaced"


def _check_callback(before: Job, fact: Input, decision: Decision) -> None:
    """A step moves only for the callback of its current attempt; every authentic callback is in the trail."""
    if not isinstance(fact, Acked | HeartbeatSeen | Resulted):
        return
    index = before.index_of(fact.step_id)
    if index is None:
        assert decision.outcome is Outcome.STEP_NOT_FOUND
        assert decision.job is before
        return
    attempt = before.steps[index].attempt
    is_current = attempt is not None and (attempt.attempt_no, attempt.lease_id) == (fact.attempt_no, fact.lease_id)
    assert (decision.outcome is not Outcome.STALE_ATTEMPT) <= is_current, (
        "a service whose attempt is not current is told to stop"
    )
    if decision.outcome is not Outcome.APPLIED:
        assert decision.job.steps == before.steps, "a callback that is not applied changes nothing"
        assert decision.job.status is before.status
        assert all(isinstance(effect, SettleDirective) for effect in decision.effects)
    name = {Acked: "ACK", HeartbeatSeen: "HEARTBEAT", Resulted: "RESULT"}[type(fact)]
    is_recorded = any(event.type == name for event in decision.events)
    if decision.outcome is Outcome.APPLIED:
        assert is_recorded or name == "HEARTBEAT"
        return
    kind = f"{index}/{fact.attempt_no}/{name}/{decision.outcome}"
    assert is_recorded is (kind not in before.callbacks_recorded), "the first of each kind is recorded, and no other"
    assert kind in decision.job.callbacks_recorded
    assert is_recorded or decision.job is before, "a repeat writes nothing"


def _check_events(before: Job | None, decision: Decision) -> None:
    first = 1 if before is None else before.event_seq + 1
    assert [event.seq for event in decision.events] == list(range(first, first + len(decision.events)))
    assert decision.job.event_seq == first - 1 + len(decision.events)
    if before is None:
        assert decision.events[0].type == "ACCEPTED"
        return
    is_moved = decision.job.status is not before.status or any(
        new.status is not old.status for old, new in zip(before.steps, decision.job.steps, strict=True)
    )
    assert bool(decision.events) >= is_moved, "every state change is in the audit trail"


def _check_publishing(decision: Decision) -> None:
    """A directive is published only for an attempt in the ledger, and never after cancel or the end."""
    job = decision.job
    orders = [effect for effect in decision.effects if isinstance(effect, PublishDirective)]
    assert len(orders) <= 1
    for order in orders:
        assert job.status not in ENDED | {J.CANCELLING}
        assert order.step_index == job.current_index
        step = job.current_step
        assert step.attempt is not None
        # If the bus shares the ledger's commit, the decision that requests a publish also records it.
        assert (step.status, step.attempt.dispatch) in (
            (S.DISPATCHING, DispatchStatus.PENDING),
            (S.INITIATED, DispatchStatus.SENT),
        )


# --- A whole ledger --------------------------------------------------------------------------------------------------


async def check_ledger(ledger: Ledger, *, counts_are_exact: bool = True) -> list[Job]:
    """Check everything in a ledger; returns the jobs, newest first."""
    jobs = await _all_jobs(ledger)
    leases: set[str] = set()
    counts: dict[str, int] = {}
    for job in jobs:
        check_job(job)
        if not job.is_terminal:
            for scope in job.slots:
                counts[scope] = counts.get(scope, 0) + 1
        await _check_history(ledger, job, leases)
    if counts_are_exact:
        inflight = {scope: count for scope, count in (await ledger.inflight()).items() if count}
        assert inflight == counts, "in-flight counts equal the number of jobs that have not ended"
    is_open = {job.job_id: not job.is_terminal for job in jobs}
    for row in await ledger.outbox(10_000):
        assert is_open.get(row.job_id), "an unsent row belongs to an open job"
    return jobs


async def _all_jobs(ledger: Ledger) -> list[Job]:
    jobs: list[Job] = []
    while page := await ledger.jobs(JobFilter(), 200, jobs[-1].job_id if jobs else None):
        assert all(isinstance(job, Job) for job in page), "every job can be read"
        jobs += [job for job in page if isinstance(job, Job)]
    return jobs


async def _check_history(ledger: Ledger, job: Job, leases: set[str]) -> None:
    by_step = await ledger.attempts(job.job_id)
    for step in job.steps:
        attempts = by_step.get(step.spec.step_id, [])
        own = [
            attempt for attempt in attempts if job.spec.redrive_of is None or attempt.created_at >= job.spec.created_at
        ]
        assert [attempt.attempt_no for attempt in attempts] == list(range(1, len(attempts) + 1))
        assert (attempts[-1] if attempts else None) == step.attempt, "the current attempt is the newest one"
        assert all(attempt.ended_at is not None for attempt in attempts[:-1]), "only the newest attempt may be live"
        assert all(attempt.dispatch is not DispatchStatus.PENDING for attempt in attempts[:-1])
        fresh = [attempt.lease_id for attempt in own]
        assert not leases & set(fresh), "a lease is never used twice"
        leases.update(fresh)
    events: list[Event] = []
    while page := await ledger.events(job.job_id, events[-1].seq if events else 0, 500):
        events += page
    assert [event.seq for event in events] == list(range(1, job.event_seq + 1)), "the audit trail has no gaps"
    check_trail(job, [(event.type, event.step_id, event.attempt_no, event.data) for event in events])


def check_trail(job: Job, events: list[tuple[str, str | None, int | None, dict[str, Any]]]) -> None:
    """Replay a job's audit trail: every transition is legal, and the last state is the job's."""
    status = J.QUEUED
    steps = {step.spec.step_id: S.PENDING for step in job.steps}
    applied: set[tuple[str | None, int | None]] = set()
    for type_, step_id, attempt_no, data in events:
        reached = J(data["job_status"])
        assert reached is status or reached in JOB_NEXT.get(status, set()), f"{status} -> {reached} at {type_}"
        status = reached
        if step_id is not None:
            there = S(data["step_status"])
            assert there is steps[step_id] or there in STEP_NEXT.get(steps[step_id], set()), f"{type_} of {step_id}"
            steps[step_id] = there
        if type_ == "RESULT" and data.get("outcome") == Outcome.APPLIED:
            assert (step_id, attempt_no) not in applied, "an attempt has one accepted result"
            applied.add((step_id, attempt_no))
    assert status is job.status, "the trail ends in the job's state"
