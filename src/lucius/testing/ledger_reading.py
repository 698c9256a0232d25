"""Ledger suite, part three: reads by the engine and by people."""

from __future__ import annotations

from lucius.domain.attempt import DispatchStatus, Verdict
from lucius.domain.inputs import DeadlinePassed, DispatchDue, PauseAsked, PublishDeferred, PublishFailed
from lucius.domain.job import Job, JobStatus
from lucius.domain.signature import error_signature
from lucius.domain.time import after
from lucius.ports.ledger import HeldLine, JobFilter, JobKey, Ledger, OutboxRow, Tally, UnreadableJob
from lucius.testing.ledger_driver import LedgerDriver, ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock, claim_of


class LedgerReading:
    # --- Timers and outbox -------------------------------------------------------------------------------------------

    async def test_due_answers_the_longest_overdue_first(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        waits = {seconds: await driver.create(not_before=after(START, seconds)) for seconds in (30, 10, 40, 20)}
        in_order = [waits[seconds].job_id for seconds in (10, 20, 30, 40)]
        assert await ledger.due(after(START, 9.999), 10) == []
        assert await ledger.due(after(START, 10), 10) == in_order[:1]
        assert await ledger.due(after(START, 30), 10) == in_order[:3]
        assert await ledger.due(after(START, 99), 10) == in_order
        assert await ledger.due(after(START, 99), 2) == in_order[:2]

    async def test_due_follows_the_timer_as_it_moves(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        job = await driver.tell(job, published(job))
        assert await ledger.due(after(START, 30), 10) == [job.job_id]
        job = await driver.tell(job, ack(job))
        assert await ledger.due(after(START, 30), 10) == []
        assert await ledger.due(after(START, 900), 10) == [job.job_id]

    async def test_due_never_names_a_job_that_has_ended(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.succeed(await driver.create())
        await driver.fail(await driver.create())
        await driver.cancel(await driver.create())
        assert await ledger.due(after(START, 10**8), 10) == []

    async def test_undispatched_names_unsent_attempts_that_nobody_claims(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        clock.claim_seconds = 0.0
        free = await driver.create()
        clock.claim_seconds = 30.0
        claimed, sent = await driver.create(), await driver.create()
        await driver.tell(sent, published(sent))
        assert await ledger.undispatched(START, 10) == [free.job_id]
        assert set(await ledger.undispatched(START, 10, ignore_claims=True)) == {free.job_id, claimed.job_id}
        assert await ledger.undispatched(after(START, 29.999), 10) == [free.job_id]
        assert set(await ledger.undispatched(after(START, 30), 10)) == {free.job_id, claimed.job_id}
        assert len(await ledger.undispatched(after(START, 30), 1)) == 1

    async def test_undispatched_follows_the_claim(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        job = await driver.tell(job, PublishDeferred("ocr", 1))
        assert await ledger.undispatched(clock.now(), 10) == [job.job_id]
        job = await driver.tell(job, DispatchDue())
        assert await ledger.undispatched(clock.now(), 10) == []
        job = await driver.tell(job, published(job))
        assert await ledger.undispatched(after(START, 10**6), 10, ignore_claims=True) == []

    async def test_undispatched_passes_over_what_can_no_longer_be_sent(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        refused, cancelled, waiting = [await driver.create() for _ in range(3)]
        await driver.tell(refused, PublishFailed("ocr", 1, "too large"))
        await driver.cancel(cancelled)
        assert await ledger.undispatched(after(START, 10**6), 10, ignore_claims=True) == [waiting.job_id]

    async def test_attempts_that_are_held_wait_in_their_line(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        clock.claim_seconds, clock.is_holding_back = 0.0, True
        first, second, other = [await driver.create(tenant_id=tenant) for tenant in ("acme", "acme", "other")]
        clock.is_holding_back = False
        free = await driver.create()
        acme, others = [HeldLine(job.spec.tenant_id, job.spec.routing.lane, "ocr") for job in (first, other)]
        assert sorted(await ledger.held_lines(10), key=lambda line: line.tenant_id) == [acme, others]
        assert len(await ledger.held_lines(1)) == 1
        assert await ledger.held(acme, "outbox", 10) == [first.job_id, second.job_id]
        assert await ledger.held(acme, "outbox", 1) == [first.job_id]
        assert await ledger.held(acme, "temporal", 10) == []
        assert await ledger.held(HeldLine("acme", acme.lane, "sis"), "outbox", 10) == []
        assert await ledger.undispatched(after(START, 10**6), 10, ignore_claims=True) == [free.job_id]
        assert {row.job_id for row in await ledger.outbox(10)} == {
            first.job_id,
            second.job_id,
            other.job_id,
            free.job_id,
        }
        asked = [first.job_id, free.job_id, clock.job_id()]
        assert await ledger.wait_causes(asked) == {first.job_id: "TENANT_CAP", free.job_id: "BUS"}
        clock.claim_seconds = 30.0
        first = await driver.tell(first, DispatchDue())
        assert await ledger.held(acme, "outbox", 10) == [second.job_id]
        await driver.tell(first, published(first))
        await driver.cancel(second)
        assert await ledger.held_lines(10) == [others]

    async def test_unacknowledged_names_what_is_on_its_way_to_a_service(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        unsent, sent, acked, ended = [await driver.create() for _ in range(4)]
        clock.is_holding_back = True
        await driver.create()
        await driver.tell(sent, published(sent))
        await driver.tell(acked, published(acked), ack(acked))
        await driver.fail(ended)
        assert await ledger.unacknowledged("outbox", 10, None) == [unsent.job_id, sent.job_id]
        assert await ledger.unacknowledged("outbox", 10, unsent.job_id) == [sent.job_id]
        assert await ledger.unacknowledged("outbox", 1, None) == [unsent.job_id]
        assert await ledger.unacknowledged("temporal", 10, None) == []

    async def test_undelivered_names_what_is_unsent_or_waits_for_a_retry(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        unsent, refused, sent, failed, ended = [await driver.create() for _ in range(5)]
        await driver.tell(refused, PublishFailed("ocr", 1, "too large"))
        await driver.tell(sent, published(sent))
        await driver.tell(failed, published(failed), ack(failed), result(failed, Verdict.FAILED))
        await driver.fail(ended)
        wanted = [unsent.job_id, refused.job_id, failed.job_id]
        assert await ledger.undelivered("outbox", 10, None) == wanted
        assert await ledger.undelivered("outbox", 1, wanted[0]) == wanted[1:2]
        assert await ledger.undelivered("temporal", 10, None) == []

    async def test_outbox_lists_unsent_attempts_oldest_first(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        assert await ledger.outbox(10) == []
        jobs = []
        for _ in range(4):
            jobs.append(await driver.create())
            clock.advance(1)
        await driver.tell(jobs[1], published(jobs[1]))
        rows = await ledger.outbox(10)
        assert [row.job_id for row in rows] == [jobs[place].job_id for place in (0, 2, 3)]
        first, spec = rows[0], jobs[0].spec
        assert isinstance(first, OutboxRow)
        assert (first.step_id, first.tenant_id, first.routing.lane) == ("ocr", spec.tenant_id, spec.routing.lane)
        assert first.attempt == jobs[0].current_step.attempt
        assert first.attempt.dispatch is DispatchStatus.PENDING
        assert await ledger.outbox(2) == rows[:2]

    async def test_outbox_stays_oldest_first_when_a_row_is_claimed_again(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        old = await driver.create()
        clock.advance(20)
        young = await driver.create()
        clock.advance(20)
        await driver.tell(old, DispatchDue())
        assert [row.job_id for row in await ledger.outbox(10)] == [old.job_id, young.job_id]

    # --- Lists -------------------------------------------------------------------------------------------------------

    async def _shelf(self, ledger: Ledger, clock: ManualClock) -> list[Job]:
        """Jobs of two tenants in several states, a second apart, oldest first."""
        driver = LedgerDriver(ledger, clock)
        jobs = []
        for place in range(9):
            tenant = ("acme", "globex", "initech")[place % 3]
            job = await driver.create(tenant_id=tenant, request_type="OCR" if place < 5 else "SIS", steps=["ocr"])
            if place in (1, 4):
                job = await driver.succeed(job)
            elif place in (2, 3):
                job = await driver.fail(job)
            elif place == 6:
                job = await driver.tell(job, PauseAsked("operator"))
            jobs.append(job)
            clock.advance(1)
        return jobs

    async def test_jobs_lists_whole_aggregates_newest_first(self, ledger: Ledger, clock: ManualClock) -> None:
        jobs = await self._shelf(ledger, clock)
        assert await ledger.jobs(JobFilter(), 100, None) == jobs[::-1]

    async def test_jobs_pages_by_the_last_id_seen(self, ledger: Ledger, clock: ManualClock) -> None:
        jobs = await self._shelf(ledger, clock)
        seen: list[Job | UnreadableJob] = []
        before = None
        while page := await ledger.jobs(JobFilter(), 4, before):
            assert len(page) <= 4
            seen += page
            before = page[-1].job_id
        assert seen == jobs[::-1]

    async def test_jobs_pages_are_not_moved_by_jobs_that_arrive(self, ledger: Ledger, clock: ManualClock) -> None:
        jobs = await self._shelf(ledger, clock)
        page = await ledger.jobs(JobFilter(), 4, None)
        await LedgerDriver(ledger, clock).create()
        assert await ledger.jobs(JobFilter(), 4, page[-1].job_id) == jobs[::-1][4:8]

    async def test_jobs_filters(self, ledger: Ledger, clock: ManualClock) -> None:
        jobs = await self._shelf(ledger, clock)

        async def places(limit: int = 100, before: str | None = None, **wanted: object) -> list[int]:
            found = await ledger.jobs(JobFilter(**wanted), limit, before)  # type: ignore[arg-type]
            return [jobs.index(job) for job in found if isinstance(job, Job)]

        assert await places(tenants=("acme",)) == [6, 3, 0]
        assert await places(job_id=jobs[4].job_id) == [4]
        assert await places(job_id_prefix=jobs[4].job_id) == [4]
        whole = jobs[4].job_id
        for end in range(1, len(whole)):
            same = [place for place in range(8, -1, -1) if jobs[place].job_id.startswith(whole[:end])]
            assert await places(job_id_prefix=whole[:end]) == same
        assert await places(job_id_prefix=whole[:18], tenants=(jobs[4].spec.tenant_id,), before=whole) == []
        assert await places(job_id_prefix="0", created_from=after(START, 3), created_to=after(START, 5)) == [4, 3]
        assert await places(job_id_prefix="f") == []
        assert await places(tenants=("acme", "globex")) == [7, 6, 4, 3, 1, 0]
        assert await places(tenants=()) == []
        assert await places(tenants=("nobody",)) == []
        assert await places(status="SUCCEEDED") == [4, 1]
        assert await places(status="FAILED_FINAL") == [3, 2]
        assert await places(status="PAUSED") == [6]
        assert await places(status="DISPATCHING") == [8, 7, 5, 0]
        assert await places(request_type="SIS") == [8, 7, 6, 5]
        assert await places(created_from=after(START, 3)) == [8, 7, 6, 5, 4, 3]
        assert await places(created_to=after(START, 3)) == [2, 1, 0]
        assert await places(created_from=after(START, 2), created_to=after(START, 5)) == [4, 3, 2]
        assert await places(dead_letter=True) == [3, 2]
        assert await places(tenants=("initech",), dead_letter=True) == [2]
        assert await places(tenants=("globex",), status="SUCCEEDED", request_type="OCR") == [4, 1]
        assert await places(tenants=("globex",), status="SUCCEEDED", before=jobs[4].job_id) == [1]
        assert await places(limit=2, tenants=("acme",), before=jobs[6].job_id) == [3, 0]
        signature = error_signature(jobs[3])
        assert await places(error_signature=signature) == [3, 2]
        assert await places(error_signature=signature, tenants=("acme",), status="FAILED_FINAL") == [3]
        assert await places(error_signature="another") == []
        assert await places(statuses=("SUCCEEDED", "PAUSED")) == [6, 4, 1]
        assert await places(statuses=("SUCCEEDED", "PAUSED"), tenants=("acme", "globex"), limit=2) == [6, 4]
        assert await places(statuses=()) == []

    async def test_matching_names_the_jobs_of_a_list(self, ledger: Ledger, clock: ManualClock) -> None:
        jobs = await self._shelf(ledger, clock)
        wanted = JobFilter(statuses=("FAILED_FINAL", "DISPATCHING"))
        expected = [JobKey(jobs[place].job_id, jobs[place].spec.tenant_id) for place in (8, 7, 5, 3, 2, 0)]
        assert await ledger.matching(wanted, 100, None) == expected
        assert await ledger.matching(wanted, 2, expected[1].job_id) == expected[2:4]
        assert await ledger.matching(JobFilter(tenants=()), 10, None) == []

    async def test_tally_counts_the_jobs_of_a_list_and_names_the_oldest(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        jobs = await self._shelf(ledger, clock)
        found = await ledger.tally(JobFilter(statuses=("FAILED_FINAL", "DISPATCHING")), 2, 100)
        assert found == Tally(6, [JobKey(jobs[place].job_id, jobs[place].spec.tenant_id) for place in (0, 2)])
        for wanted in (
            JobFilter(),
            JobFilter(tenants=()),
            JobFilter(tenants=("acme", "globex"), status="SUCCEEDED"),
            JobFilter(request_type="SIS", tenants=("acme",)),
            JobFilter(error_signature=error_signature(jobs[3])),
            JobFilter(created_from=after(START, 2), created_to=after(START, 5)),
            JobFilter(status="QUEUED"),
        ):
            keys = await ledger.matching(wanted, 100, None)
            assert await ledger.tally(wanted, 3, 100) == Tally(len(keys), keys[::-1][:3])
            assert await ledger.tally(wanted, 0, 2) == Tally(min(2, len(keys)), [])

    async def test_matching_is_exact_at_both_ends_of_a_range_of_time(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        jobs = []
        for _ in range(6):
            jobs.append(await driver.create())
            clock.advance(0.4)
        between = JobFilter(created_from=jobs[1].spec.created_at, created_to=jobs[4].spec.created_at)
        found = await ledger.matching(between, 10, None)
        assert [key.job_id for key in found] == [jobs[place].job_id for place in (3, 2, 1)]
        assert [key.job_id for key in await ledger.matching(between, 2, None)] == [jobs[3].job_id, jobs[2].job_id]
        assert await ledger.tally(between, 2, 10) == Tally(3, found[:0:-1])
        assert (await ledger.tally(between, 0, 2)).jobs == 2

    async def test_statuses_and_claims_are_found_for_many_jobs(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        done, waiting = await driver.succeed(await driver.create(key="a")), await driver.create(key="b")
        unknown = clock.job_id()
        assert await ledger.statuses([done.job_id, waiting.job_id, unknown]) == {
            done.job_id: "SUCCEEDED", waiting.job_id: "DISPATCHING",
        }  # fmt: skip
        keys = [claim_of(job.spec).key for job in (done, waiting)]
        assert await ledger.find_claims([*keys, b"unknown"]) == {keys[0]: done.job_id, keys[1]: waiting.job_id}
        assert await ledger.statuses([]) == {}
        assert await ledger.find_claims([]) == {}

    async def test_jobs_filter_by_status_follows_the_job(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        for status in JobStatus:
            found = await ledger.jobs(JobFilter(status=status.value), 10, None)
            assert found == ([job] if status is JobStatus.DISPATCHING else [])
        job = await driver.cancel(job)
        assert await ledger.jobs(JobFilter(status="DISPATCHING"), 10, None) == []
        assert await ledger.jobs(JobFilter(status="CANCELLED"), 10, None) == [job]

    # --- Attempts and events -----------------------------------------------------------------------------------------

    async def test_attempts_keeps_every_attempt_oldest_first(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        tries = []
        for _ in range(2):
            job = await driver.tell(job, published(job), ack(job), result(job, Verdict.FAILED))
            tries.append(job.current_step.attempt)
            clock.advance(600)
            job = await driver.tell(job, DeadlinePassed())
        tries.append(job.current_step.attempt)
        assert await ledger.attempts(job.job_id) == {"ocr": tries}
        job = await driver.tell(job, result(job))
        tries[-1] = job.steps[0].attempt
        assert await ledger.attempts(job.job_id) == {"ocr": tries, "embedding": [job.current_step.attempt]}
        assert [attempt.attempt_no for attempt in (await ledger.attempts(job.job_id))["ocr"]] == [1, 2, 3]

    async def test_attempts_of_an_unknown_job_are_none(self, ledger: Ledger, clock: ManualClock) -> None:
        assert await ledger.attempts(clock.job_id()) == {}

    async def test_events_come_in_order_and_page_by_number(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        other = await driver.create()
        change = driver.creation()
        written = list(change.events)
        job = await driver.write(change)
        for facts in ([published(job)], [ack(job), heartbeat(job, 0.5)], [result(job)]):
            clock.advance(1)
            change = driver.change(job, *facts)
            written += change.events
            job = await driver.write(change)
        events = await ledger.events(job.job_id, 0, 100)
        assert events == written
        assert [event.seq for event in events] == list(range(1, job.event_seq + 1))
        assert await ledger.events(job.job_id, 2, 3) == written[2:5]
        assert await ledger.events(job.job_id, job.event_seq, 10) == []
        assert [event.seq for event in await ledger.events(other.job_id, 0, 100)] == [1, 2]

    async def test_events_of_an_unknown_job_are_none(self, ledger: Ledger, clock: ManualClock) -> None:
        assert await ledger.events(clock.job_id(), 0, 10) == []

    async def test_health_answers(self, ledger: Ledger) -> None:
        assert await ledger.health()
