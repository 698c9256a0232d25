"""A machine's clock beside that of Azure Storage: compared with it by the dates of its answers, not following it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.azurite import Azurite

from lucius.azure.tables import TableAccount
from lucius.bootstrap import open_app
from lucius.clocks import ComparedClock, SystemClock
from lucius.doctor import examine_all
from lucius.domain.errors import InfrastructureError
from lucius.management import clock_check
from lucius.ports.readiness import NotReady
from lucius.settings import Settings
from lucius.testing.samples import ShiftedClock

AHEAD_SECONDS = 20.0


def settings_of(azurite: Azurite, folder: Path) -> Settings:
    return Settings(
        ledger="aztables:ledger", bus="memory", storage_connection=azurite.connection, data=str(folder),
        table_prefix="skewed", api_key="lk_of_the_clock_tests", callback_keys=("k1:0123456789abcdef",),
    )  # fmt: skip


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock as the client of Tables reads it."""

    class Ahead:
        time = staticmethod(lambda: time.time() + AHEAD_SECONDS)

    monkeypatch.setattr("lucius.azure.tables.time", Ahead)


async def test_skew_is_known_after_any_answer(azurite: Azurite) -> None:
    async with TableAccount.connected(azurite.connection) as account:
        await account.table_names()
        assert abs(account.skew_seconds) < 3


async def test_time_is_the_machines_and_skew_what_it_is_compared_with() -> None:
    machine = ShiftedClock()
    clock = ComparedClock(machine)
    assert clock.skew_seconds == 0
    clock.compare_with(lambda: 7.0)
    assert clock.skew_seconds == 7
    assert abs(clock.now() - machine.now()) < 1_000
    with pytest.raises(NotReady, match=r"7\.0 s ahead of Azure Storage's: correct it"):
        await clock_check(clock, 5.0).look()
    assert SystemClock().skew_seconds == 0


async def test_a_machine_that_is_far_off_does_not_start(azurite: Azurite, tmp_path: Path, ahead: None) -> None:
    with pytest.raises(
        InfrastructureError, match=r"20\.\d s ahead of Azure Storage's|19\.\d s ahead of Azure Storage's"
    ):
        async with open_app(settings_of(azurite, tmp_path), upgrades=True):
            pass


async def test_readiness_and_doctor_compare_the_clocks(
    azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(azurite, tmp_path)
    async with open_app(settings, upgrades=True) as context:
        found = await context.management.readiness.look()
        assert found.checks["clock"].ok, found
        assert "runbooks are off: they need SQL" in str(found.checks["runbooks"].detail)
        monkeypatch.setattr(type(context.clock), "skew_seconds", property(lambda self: -9.0))
        found = await context.management.readiness.look()
        assert "9.0 s behind Azure Storage's" in str(found.checks["clock"].detail)
    parts = {one.part: one for one in await examine_all(settings)}
    assert "9.0 s behind Azure Storage's" in parts["clock"].detail
    monkeypatch.undo()
    parts = {one.part: one for one in await examine_all(settings)}
    assert parts["clock"].ok
    assert parts["clock"].detail.endswith("from Azure Storage's")
    assert parts["ledger"].detail.startswith("Azure Tables")
    assert (parts["schema"].ok, parts["schema"].detail) == (True, "every table is there, and the container")
    assert "runbooks are off" in parts["runbooks"].detail
