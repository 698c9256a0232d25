"""What LUCIUS relies on in Azurite."""

from __future__ import annotations

import pytest
from azure.core import MatchConditions
from azure.data.tables import TableTransactionError, UpdateMode
from azure.data.tables.aio import TableServiceClient
from tests.azurite import Azurite


async def test_azurite_honours_if_match_inside_a_transaction(azurite: Azurite) -> None:
    """It once did not (Azurite 1233)."""
    async with TableServiceClient.from_connection_string(azurite.connection) as service:
        table = await service.create_table("ifmatch")
        row = {"PartitionKey": "p", "RowKey": "r", "value": 1}
        written = await table.create_entity(row)
        await table.update_entity({**row, "value": 2}, mode=UpdateMode.REPLACE)
        stale = {"etag": written["etag"], "match_condition": MatchConditions.IfNotModified, "mode": UpdateMode.REPLACE}
        with pytest.raises(TableTransactionError) as raised:
            await table.submit_transaction([("update", {**row, "value": 3}, stale)])
        assert raised.value.status_code == 412
        assert (await table.get_entity("p", "r"))["value"] == 2
        await service.delete_table("ifmatch")
