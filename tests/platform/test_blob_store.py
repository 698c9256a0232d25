"""The workspace store with its claims in Azure Blob: replicas on several machines share them."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.azure.lossy_proxy import LossyProxy
from tests.azurite import Azurite
from tests.platform.blob_service import blob_files, create_containers

from lucius.azure.blob import BlobUnavailable
from lucius.platform import Directive, ServiceUnusable
from lucius.platform.blob_files import BlobFiles
from lucius.platform.claims import CLAIM
from lucius.platform.idempotency_store import IdempotencyStore, Owed, Seen, StoreFailed
from lucius.platform.refs import blob_of
from lucius.platform.remote_files import RemoteFiles
from lucius.platform.workspace_store import WorkspaceStore
from lucius.testing.store_suite import SUCCESS, TOKEN, StoreSuite

CONTAINER = "kit-store"


@pytest.fixture(scope="module")
def blobs(azurite: Azurite) -> Iterator[BlobFiles]:
    create_containers(azurite, CONTAINER)
    with blob_files(azurite.connection) as blobs:
        yield blobs


@asynccontextmanager
async def opened(folder: Path, blobs: BlobFiles) -> AsyncIterator[WorkspaceStore]:
    store = WorkspaceStore(folder, RemoteFiles(blobs))
    assert await store.open() == []
    try:
        yield store
    finally:
        await store.close()


class TestWorkspaceStoreInBlob(StoreSuite):
    @pytest.fixture(autouse=True)
    def _prepare(self, blobs: BlobFiles) -> None:
        self.blobs = blobs
        self.root = f"blob://{CONTAINER}/{uuid.uuid4().hex}"

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[IdempotencyStore]:
        async with opened(tmp_path / "state", self.blobs) as store:
            yield store

    @pytest.fixture
    async def replica(self, tmp_path: Path) -> AsyncIterator[IdempotencyStore]:
        async with opened(tmp_path / "state-of-the-replica", self.blobs) as replica:
            yield replica

    def directive(self, workspace: Path, job: str = "job-1", **fields: Any) -> Directive:
        given = fields.pop("workspace_ref", None)
        kind = "OTHER" if given else "OCR"
        ref = f"{self.root}/acme/{job}/{kind}/{fields.get('attempt_no', 1)}/"
        return super().directive(workspace, job, workspace_ref=ref, **fields)

    @asynccontextmanager
    async def reopened(self, store: IdempotencyStore) -> AsyncIterator[tuple[IdempotencyStore, list[Owed]]]:
        assert isinstance(store, WorkspaceStore)
        await store.close()
        again = WorkspaceStore(store._folder.path, RemoteFiles(self.blobs))
        owed = await again.open()
        try:
            yield again, owed
        finally:
            await again.close()

    def claim(self, directive: Directive) -> bytes | None:
        return self.blobs.read(blob_of(f"{directive.workspace_ref}{CLAIM}", "claim", ""), 999)

    async def test_of_two_replicas_one_is_told_new(
        self, store: IdempotencyStore, replica: IdempotencyStore, workspace: Path
    ) -> None:
        directives = [self.directive(workspace, f"job-{number}") for number in range(20)]
        pairs = await asyncio.gather(
            *(asyncio.gather(store.begin(one), replica.begin(one)) for one in directives),
        )
        assert [sorted(pair) for pair in pairs] == [[Seen.IN_WORK, Seen.NEW]] * 20

    async def test_a_replica_sees_how_far_the_other_is_and_owes_nothing(
        self, store: IdempotencyStore, replica: IdempotencyStore, workspace: Path
    ) -> None:
        directive = self.directive(workspace)
        assert await store.begin(directive) is Seen.NEW
        assert await replica.begin(directive) is Seen.IN_WORK
        await store.finish(directive, SUCCESS)
        assert await replica.begin(directive) is Seen.FINISHED
        async with self.reopened(replica) as (_, owed):
            assert owed == []
        await store.settle(directive.key)
        assert await replica.begin(directive) is Seen.SETTLED

    async def test_who_lost_the_claim_and_died_owes_nothing(
        self, store: IdempotencyStore, replica: IdempotencyStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Dead between its note and its claim, while another replica works: that one's attempt must not be failed."""
        directive = self.directive(workspace)
        with monkeypatch.context() as dying:
            dying.setattr(BlobFiles, "create", _unavailable)
            with pytest.raises(StoreFailed, match="no answer"):
                await store.begin(directive)
        assert await replica.begin(directive) is Seen.NEW
        async with self.reopened(store) as (_, owed):
            assert owed == []

    async def test_a_claim_that_was_written_unknown_to_its_writer_is_taken_up(
        self, store: IdempotencyStore, replica: IdempotencyStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The write went through, every answer was lost, and the directive is delivered again."""
        directive = self.directive(workspace)
        create = BlobFiles.create

        def create_and_fail(blobs: BlobFiles, *arguments: Any) -> bool:
            assert create(blobs, *arguments)
            return _unavailable()

        with monkeypatch.context() as lossy:
            lossy.setattr(BlobFiles, "create", create_and_fail)
            with pytest.raises(StoreFailed, match="no answer"):
                await store.begin(directive)
        assert await replica.begin(directive) is Seen.IN_WORK
        assert await store.begin(directive) is Seen.NEW
        assert await store.begin(directive) is Seen.IN_WORK

    async def test_a_claim_tells_no_token(self, store: IdempotencyStore, workspace: Path) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.finish(directive, SUCCESS)
        content = self.claim(directive)
        assert content is not None
        assert content.startswith(b"FINISHED ")
        assert TOKEN.encode() not in content

    async def test_a_workspace_that_was_cleaned_up_does_not_come_back(
        self, store: IdempotencyStore, workspace: Path
    ) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.finish(directive, SUCCESS)
        self.blobs.delete(blob_of(f"{directive.workspace_ref}{CLAIM}", "claim", ""))
        await store.settle(directive.key)
        assert self.claim(directive) is None

    async def test_claims_in_blob_need_the_account_at_the_next_start(
        self, store: IdempotencyStore, workspace: Path
    ) -> None:
        assert isinstance(store, WorkspaceStore)
        await store.begin(self.directive(workspace))
        await store.close()
        for _ in range(2):
            with pytest.raises(ServiceUnusable, match=r"claimed in Azure Blob.*LUCIUS_STORAGE_ACCOUNT"):
                await WorkspaceStore(store._folder.path).open()


def _unavailable(*_: object) -> bool:
    raise BlobUnavailable("no answer within 30 s")


async def test_of_racing_replicas_one_begins_although_answers_are_lost(
    azurite: Azurite, blobs: BlobFiles, tmp_path: Path
) -> None:
    """The proxy passes each claim's write on and answers 503; the SDK tries again, and is refused by its own write or
    by that of the other replica."""
    count, root = 5, f"blob://{CONTAINER}/{uuid.uuid4().hex}"
    async with LossyProxy(azurite.blob_port) as proxy:
        connection = azurite.connection.replace(f":{azurite.blob_port}/", f":{proxy.port}/")
        with blob_files(connection) as lossy:
            async with opened(tmp_path / "one", lossy) as one, opened(tmp_path / "two", lossy) as two:
                directives = [
                    StoreSuite().directive(tmp_path, f"job-{number}", workspace_ref=f"{root}/acme/{number}/OCR/1/")
                    for number in range(count)
                ]
                for _ in range(count):
                    proxy.lose_next("PUT")
                begun = await asyncio.gather(*(store.begin(each) for each in directives for store in (one, two)))
    assert proxy.lost == count
    assert Counter(begun) == {Seen.NEW: count, Seen.IN_WORK: count}
