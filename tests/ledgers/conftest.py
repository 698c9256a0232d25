"""A table on Azurite for each test of a store."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from tests.azurite import Azurite

from lucius.azure.tables import Table, TableAccount


@pytest.fixture
async def operators_table(azurite: Azurite) -> AsyncIterator[Table]:
    name = f"t{uuid.uuid4().hex[:12]}"
    async with TableAccount.connected(azurite.connection) as account:
        await account.create_table(name)
        yield account.table(name)
        await account.delete_table(name)
