"""Archive files: written whole, found by day, tenant and range, in both formats, in a folder and in Blob."""

from __future__ import annotations

import stat
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.azurite import Azurite

from lucius.archives.files import BlobFolder, FileArchive, Folder, Place
from lucius.archives.formats import ArchiveFormat, JsonLines, Parquet, open_format
from lucius.azure.blob import BlobAccount
from lucius.ports.archive import ArchivedJob, ArchiveUnavailable, day_of
from lucius.settings import SettingsError

FORMATS: list[type[JsonLines] | type[Parquet]] = [JsonLines, Parquet]


def job_id(number: int, day: str = "018f6b1e-7c00") -> str:
    return f"{day}-7000-8000-{number:012x}"


def archived(number: int, tenant: str = "acme", text: str = "") -> ArchivedJob:
    id_ = job_id(number)
    document = f'{{"format":1,"jobId":"{id_}","tenant_id":"{tenant}","text":"{text}"}}'
    return ArchivedJob(
        job_id=id_, tenant_id=tenant, status="SUCCEEDED", request_type="OCR", created_at=0, completed_at=1,
        document=document.encode(),
    )  # fmt: skip


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> ArchiveFormat:
    found: ArchiveFormat = request.param()
    return found


@pytest.fixture
async def blobs(azurite: Azurite) -> AsyncIterator[Place]:
    async with BlobAccount.connected(azurite.connection) as account:
        container = f"archive-{uuid.uuid4().hex[:12]}"
        await account.create_container(container)
        yield BlobFolder(account, container, "/jobs/")


async def found_and_not_found(place: Place, format_: ArchiveFormat) -> None:
    archive = FileArchive(place, format_)
    mention = archived(5, text=job_id(3))
    jobs = [archived(1), archived(2, "rival"), mention, archived(9, "rival")]
    await archive.write(jobs)
    await archive.write(jobs)
    for job in jobs:
        assert await archive.find(job.job_id, None) == job.document
        assert await archive.find(job.job_id, {job.tenant_id}) == job.document
    assert await archive.find(job_id(1), {"rival"}) is None
    assert await archive.find(job_id(1), set()) is None
    assert await archive.find(job_id(3), None) is None, "another job mentions it"
    assert await archive.find(job_id(1, "019f6b1e-7c00"), None) is None
    assert await archive.health()


async def test_jobs_are_found_in_a_folder(tmp_path: Path, format_: ArchiveFormat) -> None:
    await found_and_not_found(Folder(tmp_path / "archive"), format_)
    files = [path for path in (tmp_path / "archive").rglob("*") if path.is_file()]
    assert len(files) == 2, "writing the same again changes nothing"
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_jobs_are_found_in_blobs(blobs: Place) -> None:
    await found_and_not_found(blobs, JsonLines())


async def test_only_files_that_may_have_the_job_are_read(tmp_path: Path) -> None:
    class Counting(Folder):
        reads = 0

        async def read(self, path: str) -> bytes:
            self.reads += 1
            return await super().read(path)

    place = Counting(tmp_path)
    archive = FileArchive(place, JsonLines())
    for first in range(0, 50, 10):
        await archive.write([archived(number) for number in range(first, first + 10)])
    assert await archive.find(job_id(25), None) is not None
    assert place.reads == 1


async def test_an_unfinished_file_is_not_read_and_the_other_format_is(tmp_path: Path) -> None:
    await FileArchive(Folder(tmp_path), Parquet()).write([archived(1)])
    (path,) = tmp_path.rglob("*.parquet")
    path.with_name(f"{job_id(2)}_{job_id(2)}_x.jsonl.1.tmp").write_bytes(archived(2).document)
    archive = FileArchive(Folder(tmp_path), JsonLines())
    assert await archive.find(job_id(1), None) == archived(1).document
    assert await archive.find(job_id(2), None) is None


async def test_a_tenant_cannot_name_a_folder_outside(tmp_path: Path) -> None:
    await FileArchive(Folder(tmp_path / "archive"), JsonLines()).write([archived(1, "../../evil"), archived(2, "..")])
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    assert await FileArchive(Folder(tmp_path / "archive"), JsonLines()).find(job_id(2), {".."}) is not None


async def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    archive = FileArchive(Folder(tmp_path / "file" / "archive"), JsonLines())
    with pytest.raises(ArchiveUnavailable, match="cannot be written"):
        await archive.write([archived(1)])
    with pytest.raises(ArchiveUnavailable):
        await archive.health()


def test_the_day_of_a_job_is_that_of_its_id() -> None:
    assert day_of("018f6b1e-7c00-7000-8000-0123456789ab") == "2024-05-12"


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(SettingsError, match="LUCIUS_ARCHIVE_FORMAT"):
        open_format("csv")
