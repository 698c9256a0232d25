"""What every idempotency store of the platform kit must do.

Subclass `StoreSuite` in a test module and supply the fixture `store`, an open one that remembers nothing; for a store
that outlives its process, `reopened` as well. It stands for a death: it opens what the store left behind, without
anything having been closed in order.
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
        """The store's next life, and what it says is owed; closed at the end of the `with`."""
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

    # --- One life ----------------------------------------------------------------------------------------------------

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
        """A step and an attempt have a workspace folder of their own, as the orchestrator gives it to them."""
        await store.begin(self.directive(workspace))
        if "workspace_ref" in fields:
            fields = {**fields, "workspace_ref": (workspace / "acme" / "job-1" / "OTHER" / "1").as_uri()}
        assert await store.begin(self.directive(workspace, **fields)) is Seen.NEW

    # --- The next life -----------------------------------------------------------------------------------------------

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
        async with self.reopened(store) as (again, owed):
            told = {one.key: one for one in owed}
            assert set(told) == {begun.key, finished.key}
            assert told[begun.key].result == INTERRUPTED
            assert told[finished.key].result == SUCCESS
            for directive in (begun, finished):
                assert told[directive.key].token == TOKEN
                assert told[directive.key].identity == directive.identity()
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
        async with self.reopened(store) as (again, owed):
            assert len(owed) == 2
            async with self.reopened(again) as (third, still_owed):
                assert {one.key: one.result for one in still_owed} == {one.key: one.result for one in owed}
                for one in still_owed:
                    await third.settle(one.key)
                assert await third.begin(begun) is Seen.SETTLED
                async with self.reopened(third) as (_, nothing):
                    assert nothing == []
