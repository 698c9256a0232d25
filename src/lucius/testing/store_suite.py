"""Conformance suite for idempotency stores of the platform kit.

Subclass `StoreSuite` in a test module and supply the fixture `store`, an open and empty store; for a store that
outlives its process, `reopened` as well. It simulates a crash: it opens what the store left behind, without closing
the store first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from lucius.platform.directive import Directive
from lucius.platform.idempotency_store import INTERRUPTED, IdempotencyStore, Owed, Seen

TOKEN = "v1.k1.1772265360.a-token-that-nobody-may-find"
SUCCESS: dict[str, Any] = {"status": "SUCCEEDED", "artifacts": {"pages": 3, "text": "søren ☃", "deep": [{"a": None}]}}

Life = AbstractAsyncContextManager[tuple[IdempotencyStore, list[Owed]]]


class StoreSuite:
    is_durable = True

    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Path:
        return tmp_path / "workspace"

    def reopened(self, store: IdempotencyStore) -> Life:
        """The store, opened again, and the results that it says are pending; closed at the end of the `with`."""
        raise NotImplementedError

    def directive(self, workspace: Path, job: str = "job-1", **fields: Any) -> Directive:
        folder = workspace / "acme" / job / "OCR" / str(fields.get("attempt_no", 1))
        message = {
            "jobId": job,
            "tenant_id": "acme",
            "stepId": "ocr",
            "step_type": "OCR",
            "service": "ocr",
            "attempt_no": 1,
            "lease_id": f"lease of {job}",
            "lease_seconds": 60,
            "workspace_ref": folder.as_uri() + "/",
            "callback_token": TOKEN,
            **fields,
        }
        return Directive.read(message)

    # --- One process -------------------------------------------------------------------------------------------------

    async def test_an_attempt_is_new_once(self, store: IdempotencyStore, workspace: Path) -> None:
        directive = self.directive(workspace)
        assert await store.begin(directive) is Seen.NEW
        assert await store.begin(directive) is Seen.IN_WORK
        await store.finish(directive, SUCCESS)
        assert await store.begin(directive) is Seen.FINISHED
        await store.settle(directive.key)
        assert await store.begin(directive) is Seen.SETTLED

    async def test_an_attempt_that_was_dropped_may_come_again(self, store: IdempotencyStore, workspace: Path) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.drop(directive.key)
        assert await store.begin(directive) is Seen.NEW
        assert await store.begin(directive) is Seen.IN_WORK

    async def test_an_attempt_nobody_wants_a_result_of_is_settled(
        self, store: IdempotencyStore, workspace: Path
    ) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.settle(directive.key)
        assert await store.begin(directive) is Seen.SETTLED

    async def test_settling_twice_is_settling_once(self, store: IdempotencyStore, workspace: Path) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.finish(directive, SUCCESS)
        await store.settle(directive.key)
        await store.settle(directive.key)
        assert await store.begin(directive) is Seen.SETTLED

    async def test_of_many_who_begin_at_once_one_is_told_new(self, store: IdempotencyStore, workspace: Path) -> None:
        directives = [self.directive(workspace, f"job-{number}") for number in range(5)]
        begun = await asyncio.gather(*(store.begin(one) for one in directives * 8))
        assert Counter(begun) == {Seen.NEW: 5, Seen.IN_WORK: 35}

    @pytest.mark.parametrize(
        "fields", [{"attempt_no": 2}, {"stepId": "other", "workspace_ref": None}, {"job": "job-2"}], ids=str
    )
    async def test_another_attempt_is_another_key(
        self, store: IdempotencyStore, workspace: Path, fields: dict[str, Any]
    ) -> None:
        """Each attempt of a step has its own workspace folder, as the orchestrator names it."""
        await store.begin(self.directive(workspace))
        if "workspace_ref" in fields:
            fields = {**fields, "workspace_ref": (workspace / "acme" / "job-1" / "OTHER" / "1").as_uri()}
        assert await store.begin(self.directive(workspace, **fields)) is Seen.NEW

    # --- The next process --------------------------------------------------------------------------------------------

    async def test_what_is_owed_after_a_death_is_exact(self, store: IdempotencyStore, workspace: Path) -> None:
        begun, finished, settled, dropped = (
            self.directive(workspace, job) for job in ("begun", "finished", "settled", "dropped")
        )
        for one in (begun, finished, settled, dropped):
            await store.begin(one)
        await store.finish(finished, SUCCESS)
        await store.finish(settled, SUCCESS)
        await store.settle(settled.key)
        await store.drop(dropped.key)
        if not self.is_durable:
            return
        async with self.reopened(store) as (again, pending):
            by_key = {one.key: one for one in pending}
            assert set(by_key) == {begun.key, finished.key}
            assert by_key[begun.key].result == INTERRUPTED
            assert by_key[finished.key].result == SUCCESS
            for directive in (begun, finished):
                assert by_key[directive.key].token == TOKEN
                assert by_key[directive.key].identity == directive.identity()
            assert await again.begin(begun) in (Seen.IN_WORK, Seen.FINISHED)
            assert await again.begin(finished) is Seen.FINISHED
            assert await again.begin(settled) is Seen.SETTLED
            assert await again.begin(dropped) is Seen.NEW

    async def test_what_is_owed_is_owed_until_it_is_settled(self, store: IdempotencyStore, workspace: Path) -> None:
        begun, finished = self.directive(workspace, "begun"), self.directive(workspace, "finished")
        await store.begin(begun)
        await store.begin(finished)
        await store.finish(finished, SUCCESS)
        if not self.is_durable:
            return
        async with self.reopened(store) as (again, pending):
            assert len(pending) == 2
            async with self.reopened(again) as (third, still_pending):
                assert {one.key: one.result for one in still_pending} == {one.key: one.result for one in pending}
                for one in still_pending:
                    await third.settle(one.key)
                assert await third.begin(begun) is Seen.SETTLED
                async with self.reopened(third) as (_, nothing):
                    assert nothing == []
