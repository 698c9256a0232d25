"""Ledger suite, part one: `commit` writes each change atomically."""

from __future__ import annotations

import asyncio

from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.inputs import CancelAsked, PauseAsked
from lucius.domain.job import Job, JobStatus
from lucius.domain.routing import Mode
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.ports.ledger import Change, Committed, Conflict, Duplicate, Ledger
from lucius.testing.ledger_driver import LedgerDriver, ack, heartbeat, published, result, standing
from lucius.testing.samples import START, ManualClock


class LedgerWriting:
    async def test_commit_creates_a_job_that_loads_whole(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        change = driver.creation()
        assert await ledger.commit([change]) == [Committed()]
        loaded = await ledger.load([change.after.job_id])
        assert loaded == {change.after.job_id: standing(change)}
        assert loaded[change.after.job_id].revision == 1

    async def test_commit_of_nothing_writes_nothing(self, ledger: Ledger) -> None:
        assert await ledger.commit([]) == []
        assert await ledger.load([]) == {}

    async def test_load_passes_over_jobs_that_do_not_exist(self, ledger: Ledger, clock: ManualClock) -> None:
        job = await LedgerDriver(ledger, clock).create()
        assert await ledger.load([clock.job_id(), job.job_id]) == {job.job_id: job}

    async def test_load_answers_once_for_an_id_named_twice(self, ledger: Ledger, clock: ManualClock) -> None:
        job = await LedgerDriver(ledger, clock).create()
        assert await ledger.load([job.job_id, job.job_id]) == {job.job_id: job}

    async def test_commit_keeps_every_field_of_the_aggregate(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(
            tenant_id="größe & co",
            mode=Mode.BURST,
            doc_id="Ærø \N{GRINNING FACE} 'quoted' \"doc\"",
            key="a key; DROP TABLE jobs",
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            callback_urls={"completed": "https://client.example/done?x=1&y=2"},
            redrive_of="an earlier job",
            input_ref=Raw('{"uri":"blob://in/ä","pages":[1,2.50,null]}'.encode()),
            not_before=START - 1,
            schema_version="1.7",
            rules_version=1,
        )
        assert await driver.read(job) == job
        job = await driver.tell(job, published(job))
        clock.advance(0.123)
        job = await driver.tell(job, ack(job), heartbeat(job, 0.375, "page 3 of 8 \N{EM DASH} ok"))
        assert await driver.read(job) == job
        error = Failure("UPSTREAM_502", "line one\nline two\t\N{BUG}")
        job = await driver.tell(job, result(job, Verdict.FAILED, error=error))
        assert await driver.read(job) == job
        assert job.current_step.status is StepStatus.FAILED_RETRY

    async def test_commit_keeps_which_callbacks_are_recorded(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        job = await driver.tell(job, ack(job), ack(job))
        assert len(job.callbacks_recorded) == 1
        assert await driver.read(job) == job

    async def test_commit_keeps_what_a_step_hands_on(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        artifacts, output = Raw(b'{"text":"a b","n":[1,2,{"deep":null}]}'), Raw(b'"blob://out/1"')
        job = await driver.tell(job, result(job, artifacts=artifacts, output_ref=output))
        first = (await driver.read(job)).steps[0]
        assert bytes(first.artifacts) == bytes(artifacts)
        assert bytes(first.output_ref) == bytes(output)

    async def test_commit_keeps_any_text_a_service_sends(self, ledger: Ledger, clock: ManualClock) -> None:
        """Every character of JSON except NUL, which not every store supports and which the API replaces."""
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        odd = "bell \x07, line \u2028, last \U0010ffff"
        job = await driver.tell(job, heartbeat(job, 0.5, odd))
        job = await driver.tell(job, result(job, Verdict.FAILED, error=Failure("ODD", odd)))
        read = await driver.read(job)
        assert read.current_step.status is StepStatus.FAILED_RETRY
        assert read.current_step.error == Failure("ODD", odd)
        assert read.current_step.note == odd

    async def test_commit_replaces_the_aggregate_when_the_revision_holds(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        for expected in range(2, 6):
            job = await driver.tell(job, heartbeat(job, expected / 10))
            assert job.revision == expected
            assert await driver.read(job) == job

    async def test_commit_conflicts_when_the_job_has_changed(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        before = await driver.create()
        stale = driver.change(before, CancelAsked("somebody late"))
        job = await driver.tell(before, ack(before))
        events = await ledger.events(job.job_id, 0, 100)
        assert await ledger.commit([stale]) == [Conflict()]
        assert await driver.read(job) == job
        assert await ledger.events(job.job_id, 0, 100) == events

    async def test_commit_conflicts_when_the_job_does_not_exist(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        never_written = standing(driver.creation())
        assert await ledger.commit([driver.change(never_written, ack(never_written))]) == [Conflict()]
        assert await ledger.load([never_written.job_id]) == {}
        assert await ledger.events(never_written.job_id, 0, 10) == []
        assert await ledger.inflight() == {}

    async def test_commit_answers_each_change_in_order(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        kept, moved = await driver.create(key="kept"), await driver.create(key="moved")
        stale = driver.change(moved, PauseAsked("late"))
        moved = await driver.tell(moved, ack(moved))
        fresh, again = driver.creation(key="fresh"), driver.creation(key="kept")
        change = driver.change(kept, published(kept))
        outcomes = await ledger.commit([stale, fresh, again, change])
        duplicate = Duplicate(kept.job_id, kept.spec.idempotency_hash, outcomes[2].status)  # type: ignore[union-attr]
        assert outcomes == [Conflict(), Committed(), duplicate, Committed()]
        assert await driver.read(kept) == standing(change)
        assert await driver.read(moved) == moved
        assert await ledger.load([again.after.job_id]) == {}

    # --- Claims ------------------------------------------------------------------------------------------------------

    async def test_commit_refuses_a_second_job_with_the_same_claim(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        first = await driver.create(key="one")
        second = driver.creation(key="one")
        outcome = await driver.commit(second)
        assert outcome == Duplicate(first.job_id, first.spec.idempotency_hash, first.status)
        assert await ledger.load([second.after.job_id]) == {}
        assert await ledger.events(second.after.job_id, 0, 10) == []
        assert (await ledger.inflight())["global"] == 1

    async def test_duplicate_tells_the_status_the_job_has_now(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        first = await driver.succeed(await driver.create(key="one"))
        outcome = await driver.commit(driver.creation(key="one"))
        assert outcome == Duplicate(first.job_id, first.spec.idempotency_hash, JobStatus.SUCCEEDED)

    async def test_duplicate_tells_the_hash_of_the_first_command(self, ledger: Ledger, clock: ManualClock) -> None:
        """So that a key reused for another command can be distinguished from a repeated command."""
        driver = LedgerDriver(ledger, clock)
        first = await driver.create(key="one", idempotency_hash="hash of the first")
        outcome = await driver.commit(driver.creation(key="one", idempotency_hash="hash of the second"))
        assert outcome == Duplicate(first.job_id, "hash of the first", first.status)

    async def test_commit_keeps_the_first_of_two_equal_claims_in_one_call(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        first, second, other = driver.creation(key="one"), driver.creation(key="one"), driver.creation(key="two")
        job = first.after
        outcomes = await ledger.commit([first, second, other])
        assert outcomes == [Committed(), Duplicate(job.job_id, job.spec.idempotency_hash, job.status), Committed()]
        assert set(await ledger.load([c.after.job_id for c in (first, second, other)])) == {
            job.job_id,
            other.after.job_id,
        }

    async def test_claims_of_two_tenants_do_not_meet(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        changes = [driver.creation(key="one", tenant_id=tenant) for tenant in ("acme", "globex")]
        assert await ledger.commit(changes) == [Committed(), Committed()]

    async def test_find_claim_names_its_holder(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        change = driver.creation(key="one")
        assert change.claim is not None
        assert await ledger.find_claim(change.claim.key) is None
        job = await driver.cancel(await driver.write(change))
        assert await ledger.find_claim(change.claim.key) == Duplicate(
            job.job_id, job.spec.idempotency_hash, JobStatus.CANCELLED
        )

    async def test_commit_creates_jobs_without_claims(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        changes = [driver.creation(key="same", claims=False) for _ in range(2)]
        assert await ledger.commit(changes) == [Committed(), Committed()]

    # --- Many at once ------------------------------------------------------------------------------------------------

    async def test_concurrent_equal_claims_make_one_job(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        changes = [driver.creation(key="one") for _ in range(50)]
        outcomes = [o for batch in await asyncio.gather(*(ledger.commit([c]) for c in changes)) for o in batch]
        assert outcomes.count(Committed()) == 1
        winner = changes[outcomes.index(Committed())].after
        rest = [outcome for outcome in outcomes if outcome != Committed()]
        assert rest == [Duplicate(winner.job_id, winner.spec.idempotency_hash, winner.status)] * 49
        assert set(await ledger.load([c.after.job_id for c in changes])) == {winner.job_id}
        assert (await ledger.inflight())["global"] == 1

    async def test_concurrent_changes_of_one_job_stand_one_at_a_time(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        changes = [driver.change(job, heartbeat(job, place / 100, f"note {place}")) for place in range(30)]
        outcomes = [o for batch in await asyncio.gather(*(ledger.commit([c]) for c in changes)) for o in batch]
        assert outcomes.count(Committed()) == 1
        assert outcomes.count(Conflict()) == 29
        assert await driver.read(job) == standing(changes[outcomes.index(Committed())])

    async def test_concurrent_calls_that_share_jobs_in_other_orders_all_end(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        jobs = [await driver.create(key=f"job {place}") for place in range(8)]

        def turn(shift: int) -> list[Change]:
            order = jobs[shift:] + jobs[:shift]
            extra = driver.creation(key=f"shared {shift % 3}", tenant_id="globex")
            return [extra, *(driver.change(job, heartbeat(job, 0.5, f"turn {shift}")) for job in order)]

        turns = [turn(shift) for shift in range(8)]
        outcomes = await asyncio.gather(*(ledger.commit(changes) for changes in turns))
        for job in jobs:
            of_job = [
                outcome
                for changes, answers in zip(turns, outcomes, strict=True)
                for change, outcome in zip(changes, answers, strict=True)
                if change.after.job_id == job.job_id
            ]
            assert sorted(map(repr, of_job)) == [repr(Committed()), *[repr(Conflict())] * 7]
        assert (await ledger.inflight())["tenant:globex"] == 3

    async def test_many_changes_in_one_call_all_stand(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        changes = [driver.creation(key=f"job {place}", tenant_id=f"tenant {place % 5}") for place in range(150)]
        assert await ledger.commit(changes) == [Committed()] * 150
        jobs = [standing(change) for change in changes]
        assert await ledger.load([job.job_id for job in jobs]) == {job.job_id: job for job in jobs}
        changes = [driver.change(job, ack(job), heartbeat(job, place / 150)) for place, job in enumerate(jobs)]
        assert await ledger.commit(changes[40:60]) == [Committed()] * 20
        assert await ledger.commit(changes) == [Committed()] * 40 + [Conflict()] * 20 + [Committed()] * 90
        jobs = [standing(change) for change in changes]
        assert await ledger.load([job.job_id for job in jobs]) == {job.job_id: job for job in jobs}
        for job in jobs[::50]:
            assert len(await ledger.events(job.job_id, 0, 100)) == job.event_seq
        assert (await ledger.inflight())["global"] == 150

    async def test_concurrent_stories_of_many_jobs_lose_nothing(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)

        async def story(place: int) -> Job:
            job = await driver.create(key=f"job {place}")
            return await driver.succeed(job) if place % 2 else await driver.fail(job)

        jobs = await asyncio.gather(*(story(place) for place in range(30)))
        assert await ledger.load([job.job_id for job in jobs]) == {job.job_id: job for job in jobs}
        assert sum((await ledger.inflight()).values()) == 0

    async def test_commit_keeps_instants_far_away(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(not_before=after(START, 30 * 86_400), deadline_seconds=10_000 * 86_400.0)
        assert await driver.read(job) == job
        assert replace(job, revision=0).wake_at == after(START, 30 * 86_400)
