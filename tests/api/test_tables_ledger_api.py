"""A whole application with its ledger on Azure Tables; and what is said when the settings do not fit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import Raw
from tests.azurite import Azurite
from tests.tables_ledger import new_prefix, open_ledger, opened_ledger

from lucius.azure.blob import BlobAccount
from lucius.bootstrap import open_app
from lucius.cli.main import cli
from lucius.domain.job import Job
from lucius.ledgers.tables import TablesLedger
from lucius.ports.ledger import Closing, JobFilter, UnreadableJob
from lucius.settings import Settings, SettingsError
from lucius.testing.invariants import check_ledger
from lucius.testing.ledger_driver import LedgerDriver, published, result
from lucius.testing.samples import START, ManualClock


def _lucius(*words: str, **environment: str) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, list(words), env=environment)
    return ended.exit_code, ended.output


def _last_line(*words: str, **environment: str) -> tuple[int, str]:
    code, said = _lucius(*words, **environment)
    return code, said.splitlines()[-1]


@pytest.fixture(params=["ledger", "table"])
async def ledger(azurite: Azurite, request: pytest.FixtureRequest) -> AsyncIterator[TablesLedger]:
    async with opened_ledger(azurite, request.param) as ledger:
        yield ledger


async def test_jobs_run_are_found_operated_on_and_audited(
    azurite: Azurite, ledger: TablesLedger, open_api: Any
) -> None:
    api = await open_api(
        ledger=f"aztables:{ledger.store.layout.name}", bus="memory", storage_connection=azurite.connection,
        table_prefix=ledger.store.prefix,
    )  # fmt: skip
    job_id = await api.accepted()
    await api.work()
    assert (await api.job(job_id))["status"] == "SUCCEEDED"
    cancelled = await api.accepted()
    await api.operate(cancelled, "cancel", {"reason": "a test"})
    listed = (await api.client.get("/v1/jobs", params={"tenant_id": "acme"})).json()["items"]
    assert [job["jobId"] for job in listed] == [cancelled, job_id]
    acts = (await api.client.get("/v1/admin/audit")).json()["items"]
    assert [(act["kind"], act["action"], act["target"]) for act in acts] == [("job", "cancel", cancelled)]
    assert (await api.readiness())[0] == 200
    assert "succeeded" in (await api.events(job_id))[-1]["type"].lower()
    assert set(await ledger.statuses([job_id, cancelled])) == {job_id, cancelled}


async def test_a_tenant_may_have_any_name_that_the_contract_allows(
    azurite: Azurite, ledger: TablesLedger, open_api: Any
) -> None:
    """Azure's keys have an end: 128 characters of Chinese are 1,152 once they are percent-encoded."""
    api = await open_api(
        ledger=f"aztables:{ledger.store.layout.name}", bus="memory", storage_connection=azurite.connection,
        table_prefix=ledger.store.prefix,
    )  # fmt: skip
    long, like = "漢" * 128, "漢" * 127 + "字"
    job_id, other = await api.accepted(tenant_id=long), await api.accepted(tenant_id=like)
    await api.work()
    await api.operate(other, "cancel", {"reason": "a test"})
    for tenant_id, expected in {long: job_id, like: other}.items():
        listed = (await api.client.get("/v1/jobs", params={"tenant_id": tenant_id})).json()["items"]
        assert [job["jobId"] for job in listed] == [expected]
    counts = await ledger.counts_by_tenant(0, None)
    assert counts == {long: {"ACCEPTED": 1, "SUCCEEDED": 1}, like: {"ACCEPTED": 1, "CANCELLED": 1}}


def test_commands_create_check_copy_and_prune_tables(azurite: Azurite, tmp_path: Path) -> None:
    prefix = new_prefix()
    on_tables = {
        "LUCIUS_LEDGER": "aztables:ledger", "LUCIUS_BUS": "memory", "LUCIUS_STORAGE_CONNECTION": azurite.connection,
        "LUCIUS_TABLE_PREFIX": prefix, "LUCIUS_CALLBACK_KEYS": "k1:0123456789abcdef0123456789abcdef",
    }  # fmt: skip
    code, said = _lucius("db", "verify", **on_tables)
    assert code != 0
    assert "lucius db upgrade" in said
    code, said = _lucius("db", "upgrade", **on_tables)
    assert (code, f"created {prefix}ledger, {prefix}operators" in said) == (0, True)
    assert "every table is there, and the container" in _lucius("db", "upgrade", **on_tables)[1]
    assert _lucius("db", "verify", **on_tables)[0] == 0
    asyncio.run(_delete_container(azurite, f"{prefix}-ledger"))
    code, said = _lucius("db", "verify", **on_tables)
    assert code != 0
    assert f"container {prefix}-ledger" in said
    assert _lucius("db", "upgrade", **on_tables)[0] == 0
    assert _lucius("db", "verify", **on_tables)[0] == 0
    assert _lucius("db", "upgrade", "--data", str(tmp_path))[0] == 0
    source = f"sqlite:///{tmp_path}/lucius.db"
    assert _lucius("db", "copy", source, **on_tables) == (0, "0 jobs copied; 0 were there already.\n")
    assert _lucius("prune", "--offline", "--yes", "--older-than", "1d", **on_tables) == (0, "0 jobs removed.\n")


async def _delete_container(azurite: Azurite, name: str) -> None:
    async with BlobAccount.connected(azurite.connection) as account:
        await account._service.delete_container(name)


async def _some_jobs(ledger: TablesLedger) -> list[Job]:
    """At rest, with texts that are in blobs: one that has ended, a dead letter, a dismissed one and an open one."""
    large = Raw(b'{"text":"' + b"x" * 40_000 + b'"}')
    driver = LedgerDriver(ledger, ManualClock())
    ended = await driver.create(key="ended", input_ref=large)
    ended = await driver.succeed(await driver.tell(ended, published(ended), result(ended, artifacts=large)))
    failed, dismissed = [await driver.fail(await driver.create(key=key)) for key in ("failed", "dismissed")]
    await ledger.dismiss(Closing(job_id=dismissed.job_id, at=START, by="ann", reason="known"))
    return [ended, failed, dismissed, await driver.create(key="open", input_ref=large)]


@pytest.mark.parametrize(("source", "target"), [("ledger", "table"), ("table", "ledger")])
def test_jobs_are_copied_from_one_layout_to_the_other_and_pruned_in_each(
    azurite: Azurite, source: str, target: str
) -> None:
    """With the same prefix, as somebody does who changes the layout: what is pruned in one stays in the other."""
    prefix, connection = new_prefix(), azurite.connection
    common = {
        "LUCIUS_BUS": "memory", "LUCIUS_STORAGE_CONNECTION": connection, "LUCIUS_TABLE_PREFIX": prefix,
        "LUCIUS_CALLBACK_KEYS": "k1:0123456789abcdef0123456789abcdef",
    }  # fmt: skip
    from_, to = ({**common, "LUCIUS_LEDGER": f"aztables:{layout}"} for layout in (source, target))

    async def make() -> list[Job]:
        async with open_ledger(connection, source, prefix) as ledger:
            return await _some_jobs(ledger)

    async def read(layout: str) -> tuple[list[Job | UnreadableJob], list[str]]:
        async with open_ledger(connection, layout, prefix) as ledger:
            store = ledger.store
            await check_ledger(ledger)
            return await ledger.jobs(JobFilter(), 10, None), await store.blobs.names(store.container, "", 100)

    for environment in (from_, to):
        assert _lucius("db", "upgrade", **environment)[0] == 0
    jobs = asyncio.run(make())
    copy = ("db", "copy", f"aztables:{source}")
    assert _last_line(*copy, **to) == (0, "4 jobs copied; 0 were there already.")
    assert _last_line(*copy, **to) == (0, "0 jobs copied; 4 were there already.")
    prune = ("prune", "--offline", "--yes", "--older-than", "1d")
    assert _last_line(*prune, **from_) == (0, "3 jobs removed.")
    assert asyncio.run(read(source))[0] == [jobs[-1]]
    copies, blobs = asyncio.run(read(target))
    assert copies == jobs[::-1]
    assert _last_line(*prune, **to) == (0, "3 jobs removed.")
    copies, left = asyncio.run(read(target))
    assert copies == [jobs[-1]]
    assert len(left) == 2  # Of the open job, in each layout.
    assert set(left) < set(blobs)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ledger": "aztables:ledger", "bus": "sql"}, "LUCIUS_BUS=sql needs a ledger in SQL"),
        ({"ledger": "aztables:other", "bus": "memory"}, "aztables:ledger or aztables:table"),
        ({"ledger": "aztables:ledger", "bus": "memory"}, "needs a storage account"),
        (
            {"ledger": "aztables:ledger", "bus": "memory", "storage_connection": "x", "table_prefix": "No"},
            "LUCIUS_TABLE_PREFIX",
        ),
        ({"ledger": "aztables:ledger", "bus": "memory", "storage_connection": "x"}, "not a connection string"),
    ],
)
async def test_settings_that_do_not_fit_are_told(settings: dict[str, str], said: str, tmp_path: Path) -> None:
    keys = ("k1:0123456789abcdef0123456789abcdef",)
    with pytest.raises(SettingsError, match=said):
        async with open_app(Settings(data=str(tmp_path), callback_keys=keys, api_key="k" * 30, **settings)):  # type: ignore[arg-type]
            pass
