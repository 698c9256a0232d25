"""Pulls from App Configuration into a folder: files are replaced as a whole, and nobody's work is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.registries.appconfig_source import AppConfigSource

from lucius.registries.appconfig import AppConfigStore
from lucius.registries.appconfig.pulling import FileChange, apply_pull, plan_pull
from lucius.registries.appconfig.pushing import plan_push, push
from lucius.registries.appconfig.stored import read_stored
from lucius.registries.contents import Rules
from lucius.registries.files import read_folder
from lucius.registries.folders import file_name, write_file
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.registry_suite import OTHER, PROTOCOL

FIRST = {"protocols:SCAN:1": PROTOCOL.encode(), "tenants:a": b"id: a\n", "tenants:b": b"id: b\n"}
SECOND = {"protocols:SCAN:1": PROTOCOL.encode(), "tenants:a": b"{id: a, max_inflight: 3}\n"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AppConfigStore]:
    source = AppConfigSource(AppConfigServer(), tmp_path / "cache")
    async with source.server, AppConfigStore(source.options) as opened:
        yield opened


async def pushed(store: AppConfigStore, documents: dict[str, bytes]) -> None:
    await push(store, None, plan_push(await read_stored(store, None, Rules()), documents), "ann")


async def planned(store: AppConfigStore, folder: Path) -> list[FileChange]:
    return await plan_pull(store, await read_stored(store, None, Rules()), folder, Rules())


async def test_folder_becomes_what_the_store_holds(store: AppConfigStore, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    await pushed(store, FIRST)
    apply_pull(folder, await planned(store, folder))
    found = read_folder(folder, Rules())
    assert found.problems == ()
    assert {identity: one.content for identity, one in found.documents.items()} == FIRST
    assert await planned(store, folder) == []
    assert (folder / "tenants" / "a.yaml").stat().st_mode & 0o777 == 0o644


async def test_old_files_are_replaced_and_removed_where_they_are(store: AppConfigStore, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    await pushed(store, FIRST)
    apply_pull(folder, await planned(store, folder))
    (folder / "tenants" / "a.yaml").rename(folder / "tenants" / "first-customer.yaml")
    await pushed(store, SECOND)
    changes = await planned(store, folder)
    assert {(one.path, one.after is None, one.obstacle) for one in changes} == {
        ("tenants/first-customer.yaml", False, ""),
        ("tenants/b.yaml", True, ""),
    }
    apply_pull(folder, changes)
    assert {identity: one.content for identity, one in read_folder(folder, Rules()).documents.items()} == SECOND


async def test_changed_and_new_files_are_in_the_way(store: AppConfigStore, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    await pushed(store, FIRST)
    apply_pull(folder, await planned(store, folder))
    (folder / "tenants" / "a.yaml").write_text("{id: a, max_inflight: 7}\n")
    (folder / "protocols" / "fax.yaml").write_text(OTHER)
    (folder / "tenants" / "b.yaml").write_text("id: [")
    await pushed(store, SECOND | {"tenants:b": b"{id: b, max_inflight: 1}\n"})
    assert {one.path: one.obstacle for one in await planned(store, folder)} == {
        "tenants/a.yaml": "it was changed here",
        "protocols/fax.yaml": "it is not in the store",
        "tenants/b.yaml": "it was changed here",
    }


async def test_file_that_changes_between_plan_and_pull_stops_it(store: AppConfigStore, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    await pushed(store, FIRST)
    apply_pull(folder, await planned(store, folder))
    await pushed(store, SECOND)
    changes = await planned(store, folder)
    (folder / "tenants" / "a.yaml").write_text("{id: a, max_inflight: 7}\n")
    with pytest.raises(ValueError, match=r"tenants/a\.yaml was changed meanwhile"):
        apply_pull(folder, changes)
    assert (folder / "tenants" / "b.yaml").exists(), "nothing was done"


@pytest.mark.parametrize(
    "identity",
    ["tenants:../../etc/passwd", "tenants:.hidden", "tenants:a/b\\c", "protocols:../x:1", f"tenants:{'ä' * 128}"],
)
def test_no_name_leads_out_of_the_folder(identity: str, tmp_path: Path) -> None:
    name = file_name(identity)
    kind, _, rest = name.partition("/")
    assert kind == identity.partition(":")[0]
    assert "/" not in rest
    assert not rest.startswith(".")
    write_file(tmp_path / name, b"id: a\n")
    assert [path.name for path in (tmp_path / kind).iterdir()] == [rest]


def test_names_of_different_documents_differ() -> None:
    identities = ["tenants:a b", "tenants:a~20b", "tenants:a~b", "protocols:A:1", "protocols:A-1:1", "globals"]
    assert len({file_name(one) for one in identities}) == len(identities)


def test_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "tenants" / "a.yaml" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_file(tmp_path / "tenants" / "a.yaml", b"id: a\n")
    assert [path.name for path in (tmp_path / "tenants").iterdir()] == ["a.yaml"]
