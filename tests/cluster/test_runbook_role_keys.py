"""The roles of runbooks sign jobs, so they need the keys that everybody else has."""

from __future__ import annotations

import pytest

from lucius.bootstrap import open_runbooks_alone
from lucius.settings import Settings, SettingsError


@pytest.mark.parametrize("schedules", [False, True])
async def test_a_role_of_runbooks_without_keys_says_what_is_missing(schedules: bool) -> None:
    settings = Settings(ledger="postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(SettingsError, match="LUCIUS_CALLBACK_KEYS is not set"):
        async with open_runbooks_alone(settings, orchestrates=not schedules, schedules=schedules):
            pass
