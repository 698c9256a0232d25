"""Every idempotency store passes the store suite, and those on disk keep their files to themselves."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lucius.platform import ServiceUnusable, claims, idempotency_store, sqlite_store, workspace_store
from lucius.platform.idempotency_store import IdempotencyStore, MemoryStore, Owed, Seen, StoreFailed
from lucius.platform.sqlite_store import Act, SqliteStore
from lucius.platform.workspace_store import WorkspaceStore
from lucius.testing.store_suite import SUCCESS, TOKEN, StoreSuite

Store = SqliteStore | WorkspaceStore


class TestMemoryStore(StoreSuite):
    is_durable = False

    @pytest.fixture
    async def store(self) -> AsyncIterator[IdempotencyStore]:
        store = MemoryStore()
        assert await store.open() == []
        yield store
        await store.close()

    async def test_the_oldest_settled_attempts_are_forgotten(
        self, store: IdempotencyStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idempotency_store, "SETTLED_MAX", 2)
        directives = [self.directive(workspace, f"job-{number}") for number in range(3)]
        for one in directives:
            await store.begin(one)
            await store.settle(one.key)
        assert [await store.begin(one) for one in directives] == [Seen.NEW, Seen.SETTLED, Seen.SETTLED]


class DurableStore(StoreSuite):
    """On disk, in one folder that one process holds."""

    kind: type[Store]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "state" / "ocr"

    @pytest.fixture
    async def store(self, folder: Path) -> AsyncIterator[Store]:
        store = self.kind(folder)
        assert await store.open() == []
        yield store
        await store.close()

    @asynccontextmanager
    async def reopened(self, store: IdempotencyStore) -> AsyncIterator[tuple[IdempotencyStore, list[Owed]]]:
        # A process that dies loses its lock and its connection, and settles nothing. Real deaths: test_store_deaths.
        assert isinstance(store, SqliteStore | WorkspaceStore)
        await store.close()
        again = self.kind(store._folder.path)
        owed = await again.open()
        try:
            yield again, owed
        finally:
            await again.close()

    async def test_nobody_else_may_read_its_files(self, store: Store, folder: Path, workspace: Path) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.finish(directive, SUCCESS)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert any(TOKEN.encode() in path.read_bytes() for path in files)
        for path in files:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name

    async def test_tokens_and_results_are_gone_once_settled(
        self, store: Store, folder: Path, workspace: Path, tmp_path: Path
    ) -> None:
        for number in range(50):
            directive = self.directive(workspace, f"job-{number}")
            await store.begin(directive)
            await store.finish(directive, SUCCESS)
            await store.settle(directive.key)
        await store.close()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                assert TOKEN.encode() not in content, path.name
                assert b"artifacts" not in content, path.name

    async def test_a_second_process_is_refused_by_name(self, store: Store, folder: Path) -> None:
        with pytest.raises(ServiceUnusable, match=r"in use by another process.*LUCIUS_PLATFORM_STATE") as refused:
            await self.kind(folder).open()
        assert str(folder) in str(refused.value)

    async def test_a_folder_that_cannot_be_made_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ServiceUnusable, match=r"file/ocr cannot be used: Not a directory; set LUCIUS_PLATFORM"):
            await self.kind(tmp_path / "file" / "ocr").open()

    async def test_a_store_that_could_not_open_lets_go_of_its_folder(self, folder: Path) -> None:
        self.damage(folder)
        for _ in range(2):
            with pytest.raises(ServiceUnusable, match="move it away"):
                await self.kind(folder).open()

    def damage(self, folder: Path) -> None:
        raise NotImplementedError


class TestSqliteStore(DurableStore):
    kind = SqliteStore

    def damage(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / sqlite_store.FILE).write_bytes(b"this was a database once " * 400)

    async def test_a_damaged_file_says_what_is_wrong_with_which(self, folder: Path) -> None:
        self.damage(folder)
        with pytest.raises(ServiceUnusable, match=r"attempts\.db cannot be used: .*not a database"):
            await SqliteStore(folder).open()

    async def test_a_file_that_cannot_be_opened_says_so(self, folder: Path) -> None:
        (folder / sqlite_store.FILE).mkdir(parents=True)
        with pytest.raises(ServiceUnusable, match=r"attempts\.db cannot be used: .*unable to open"):
            await SqliteStore(folder).open()

    async def test_a_full_disk_fails_the_record_and_nothing_else(self, store: SqliteStore, workspace: Path) -> None:
        first = self.directive(workspace, "first")
        await store.begin(first)
        room = await store._do(Act.RUN, (lambda connection: connection.execute("PRAGMA page_count").fetchone()[0],))
        await store._do(Act.RUN, (lambda connection: connection.execute(f"PRAGMA max_page_count = {room}"),))
        large = {"status": "SUCCEEDED", "artifacts": {"text": "x" * 60_000}}
        with pytest.raises(StoreFailed, match="full"):
            await store.finish(first, large)
        assert await store.begin(first) is Seen.IN_WORK
        await store._do(Act.RUN, (lambda connection: connection.execute("PRAGMA max_page_count = 1000000"),))
        await store.finish(first, large)
        assert await store.begin(first) is Seen.FINISHED

    async def test_a_defect_in_one_record_does_not_end_the_store(self, store: SqliteStore, workspace: Path) -> None:
        """The writing thread is the only one there is: whatever it stumbles over, it goes on."""
        with pytest.raises(StoreFailed, match="ZeroDivisionError"):
            await store._do(Act.RUN, (lambda connection: 1 / 0,))
        assert await store.begin(self.directive(workspace)) is Seen.NEW

    async def test_a_store_that_is_closed_refuses_at_once(self, folder: Path, workspace: Path) -> None:
        store = SqliteStore(folder)
        await store.open()
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            with pytest.raises(StoreFailed, match="closed"):
                await store.begin(self.directive(workspace))
            await closing

    async def test_settled_attempts_are_forgotten_in_the_end_and_open_ones_never(
        self, store: SqliteStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old, owed, young = (self.directive(workspace, job) for job in ("old", "owed", "young"))
        monkeypatch.setattr(sqlite_store.time, "time", lambda: 1_000_000.0)
        await store.begin(old)
        await store.settle(old.key)
        await store.begin(owed)
        monkeypatch.setattr(sqlite_store.time, "time", lambda: 1_000_001.0 + sqlite_store.KEEP_SECONDS)
        monkeypatch.setattr(sqlite_store, "FORGET_EVERY_SECONDS", -1.0)
        await store.begin(young)
        await store.settle(young.key)
        assert await store.begin(old) is Seen.NEW
        assert await store.begin(owed) is Seen.IN_WORK
        assert await store.begin(young) is Seen.SETTLED

    async def test_a_token_is_overwritten_in_the_file_and_not_only_let_go(self, store: SqliteStore) -> None:
        """Whatever the library was compiled with."""
        assert (
            await store._do(Act.RUN, (lambda connection: connection.execute("PRAGMA secure_delete").fetchone()[0],))
            == 1
        )
        assert (
            await store._do(Act.RUN, (lambda connection: connection.execute("PRAGMA synchronous").fetchone()[0],)) == 2
        )

    async def test_what_gathers_is_one_commit(
        self, store: SqliteStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        groups: list[int] = []
        commit = store._commit

        def counted(connection: sqlite3.Connection, group: list[Any]) -> list[Any]:
            groups.append(len(group))
            return commit(connection, group)

        monkeypatch.setattr(store, "_commit", counted)
        await asyncio.gather(*(store.begin(self.directive(workspace, f"job-{number}")) for number in range(200)))
        assert sum(groups) == 200
        assert len(groups) < 100


class TestWorkspaceStore(DurableStore):
    kind = WorkspaceStore

    def damage(self, folder: Path) -> None:
        (folder / workspace_store.OWED).mkdir(parents=True)
        (folder / workspace_store.OWED / "note.json").write_text("{half a note")

    @pytest.mark.parametrize("content", ["{half", "[]", "{}", '{"key": ["a"], "result": null, "claim": null}'])
    async def test_a_damaged_note_says_what_is_wrong_with_which(self, folder: Path, content: str) -> None:
        self.damage(folder)
        (folder / workspace_store.OWED / "note.json").write_text(content)
        with pytest.raises(ServiceUnusable, match=r"owed/note\.json is damaged.*move it away"):
            await WorkspaceStore(folder).open()

    @pytest.fixture
    async def replica(self, tmp_path: Path) -> AsyncIterator[WorkspaceStore]:
        replica = WorkspaceStore(tmp_path / "state-of-the-replica" / "ocr")
        await replica.open()
        yield replica
        await replica.close()

    async def test_of_two_replicas_one_is_told_new(
        self, store: WorkspaceStore, replica: WorkspaceStore, workspace: Path
    ) -> None:
        directives = [self.directive(workspace, f"job-{number}") for number in range(20)]
        pairs = await asyncio.gather(
            *(asyncio.gather(store.begin(one), replica.begin(one)) for one in directives),
        )
        assert [sorted(pair) for pair in pairs] == [[Seen.IN_WORK, Seen.NEW]] * 20

    async def test_a_replica_sees_how_far_the_other_is(
        self, store: WorkspaceStore, replica: WorkspaceStore, workspace: Path
    ) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        assert await replica.begin(directive) is Seen.IN_WORK
        await store.finish(directive, SUCCESS)
        assert await replica.begin(directive) is Seen.FINISHED
        await store.settle(directive.key)
        assert await replica.begin(directive) is Seen.SETTLED

    async def test_who_lost_the_claim_and_died_owes_nothing(
        self, store: WorkspaceStore, replica: WorkspaceStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Dead between its note and its claim, while another replica works: that one's attempt must not be failed."""
        directive = self.directive(workspace)

        def die(claim: claims.ClaimFile, content: bytes) -> bool:
            raise OSError("killed")

        with monkeypatch.context() as dying:
            dying.setattr(claims.ClaimFile, "create", die)
            with pytest.raises(StoreFailed, match="killed"):
                await store.begin(directive)
        assert await replica.begin(directive) is Seen.NEW
        async with self.reopened(store) as (_, owed):
            assert owed == []

    async def test_a_result_is_owed_even_if_the_workspace_is_gone(self, store: WorkspaceStore, workspace: Path) -> None:
        """Cleaned up, or not mounted yet: the RESULT lies in the state folder, and is sent."""
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.finish(directive, SUCCESS)
        os.rename(workspace, workspace.with_name("elsewhere"))
        async with self.reopened(store) as (again, owed):
            assert [one.result for one in owed] == [SUCCESS]
            await again.settle(directive.key)
            assert not workspace.exists(), "folders that were cleaned up do not come back"

    async def test_an_attempt_in_work_stays_so_when_its_folder_is_cleaned_up(
        self, store: WorkspaceStore, workspace: Path
    ) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        os.rename(workspace, workspace.with_name("elsewhere"))
        assert await store.begin(directive) is Seen.IN_WORK

    @pytest.mark.parametrize("ref", ["https://example.com/workspace/", "relative/folder", "file:///a/../b/"])
    async def test_an_unusable_workspace_is_the_attempts_fault_and_not_the_stores(
        self, store: WorkspaceStore, workspace: Path, ref: str
    ) -> None:
        directive = self.directive(workspace, workspace_ref=ref)
        assert await store.begin(directive) is Seen.NEW
        assert await store.begin(directive) is Seen.IN_WORK
        async with self.reopened(store) as (again, owed):
            assert [one.key for one in owed] == [directive.key]
            await again.settle(directive.key)

    async def test_a_workspace_that_cannot_be_written_fails_the_record(
        self, store: WorkspaceStore, workspace: Path
    ) -> None:
        workspace.write_text("a file is in the way")
        directive = self.directive(workspace)
        with pytest.raises(StoreFailed, match=r"FileExistsError|NotADirectoryError"):
            await store.begin(directive)
        workspace.unlink()
        assert await store.begin(directive) is Seen.NEW

    async def test_no_temporary_files_are_left(self, store: WorkspaceStore, workspace: Path, tmp_path: Path) -> None:
        directive = self.directive(workspace)
        await store.begin(directive)
        await store.finish(directive, SUCCESS)
        await store.settle(directive.key)
        names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
        assert names == {claims.CLAIM, "lock"}
