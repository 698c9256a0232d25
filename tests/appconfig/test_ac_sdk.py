"""The App Configuration stand-in, as Azure's own client sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from azure.appconfiguration import ConfigurationSetting, ResourceReadOnlyError
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseTimeoutError,
)

from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.appconfig.signatures import AccessKey

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[tuple[AppConfigServer, AzureAppConfigurationClient]]:
    async with AppConfigServer() as server, opened(server.connection_string) as client:
        yield server, client


@pytest.fixture
def server(served: tuple[AppConfigServer, AzureAppConfigurationClient]) -> AppConfigServer:
    served[0].clear()
    return served[0]


@pytest.fixture
def client(served: tuple[AppConfigServer, AzureAppConfigurationClient], server: AppConfigServer) -> Any:
    return served[1]


def opened(connection: str) -> AzureAppConfigurationClient:
    return AzureAppConfigurationClient.from_connection_string(connection, retry_total=0)


def setting(key: str, value: str = "v", label: str | None = None, **more: Any) -> ConfigurationSetting:
    return ConfigurationSetting(key=key, value=value, label=label, **more)


async def listed(client: Any, **filters: str) -> list[tuple[str, str | None]]:
    return [(one.key, one.label) async for one in client.list_configuration_settings(**filters)]


async def test_key_value_is_set_read_changed_and_deleted(client: Any) -> None:
    made = await client.set_configuration_setting(
        setting("a:b/c d", "one", "dev", content_type="text/plain", tags={"by": "me"})
    )
    assert (made.value, made.label, made.content_type, made.tags) == ("one", "dev", "text/plain", {"by": "me"})
    found = await client.get_configuration_setting("a:b/c d", "dev")
    assert (found.value, found.etag) == ("one", made.etag)
    assert found.last_modified is not None
    changed = await client.set_configuration_setting(setting("a:b/c d", "two", "dev"))
    assert changed.etag != made.etag
    assert (await client.delete_configuration_setting("a:b/c d", "dev")).value == "two"
    with pytest.raises(ResourceNotFoundError):
        await client.get_configuration_setting("a:b/c d", "dev")
    assert await client.delete_configuration_setting("a:b/c d", "dev") is None


async def test_label_is_part_of_the_key(client: Any) -> None:
    for label in (None, "dev", "prod"):
        await client.set_configuration_setting(setting("k", f"of {label}", label))
    assert (await client.get_configuration_setting("k")).value == "of None"
    assert (await client.get_configuration_setting("k", "prod")).value == "of prod"


async def test_lists_are_filtered_by_key_and_label(client: Any) -> None:
    for key, label in (("a:1", None), ("a:2", "dev"), ("b:1", "dev"), ("a,b", "d2"), ("x*", None)):
        await client.set_configuration_setting(setting(key, label=label))
    assert len(await listed(client)) == 5
    assert await listed(client, key_filter="a:*") == [("a:1", None), ("a:2", "dev")]
    assert await listed(client, key_filter="a:*", label_filter="\0") == [("a:1", None)]
    assert await listed(client, label_filter="d*") == [("a,b", "d2"), ("a:2", "dev"), ("b:1", "dev")]
    assert await listed(client, key_filter="a:2,b:1", label_filter="dev") == [("a:2", "dev"), ("b:1", "dev")]
    assert await listed(client, key_filter="a\\,b") == [("a,b", "d2")]
    assert await listed(client, key_filter="x\\*") == [("x*", None)]
    with pytest.raises(HttpResponseError):
        await listed(client, key_filter="*a")


async def test_long_lists_come_in_pages_that_change_only_with_their_content(
    server: AppConfigServer, client: Any
) -> None:
    for number in range(250):
        server.put(f"k:{number:03}", str(number))
    assert [key for key, _ in await listed(client, key_filter="k:*")] == [f"k:{number:03}" for number in range(250)]
    pages = client.list_configuration_settings(key_filter="k:*").by_page()
    etags = [pages.etag async for _ in pages]
    assert len(set(etags)) == 3
    server.put("k:120", "changed")
    again = client.list_configuration_settings(key_filter="k:*").by_page(match_conditions=etags)
    changed = [[one.key async for one in page] async for page in again]
    assert [page[0] for page in changed] == ["k:100"]


async def test_etags_guard_reads_and_writes(client: Any) -> None:
    made = await client.add_configuration_setting(setting("k", "one"))
    with pytest.raises(ResourceExistsError):
        await client.add_configuration_setting(setting("k", "two"))
    assert await client.get_configuration_setting("k", None, made.etag, MatchConditions.IfModified) is None
    changed = await client.set_configuration_setting(setting("k", "two"), MatchConditions.IfNotModified, etag=made.etag)
    assert (await client.get_configuration_setting("k", None, made.etag, MatchConditions.IfModified)).value == "two"
    with pytest.raises(ResourceModifiedError):
        await client.set_configuration_setting(setting("k", "three"), MatchConditions.IfNotModified, etag=made.etag)
    with pytest.raises(ResourceModifiedError):
        await client.delete_configuration_setting("k", etag=made.etag, match_condition=MatchConditions.IfNotModified)
    await client.delete_configuration_setting("k", etag=changed.etag, match_condition=MatchConditions.IfNotModified)


async def test_locked_key_value_is_neither_changed_nor_deleted(client: Any) -> None:
    made = await client.set_configuration_setting(setting("k"))
    assert (await client.set_read_only(made)).read_only
    with pytest.raises(ResourceReadOnlyError):
        await client.set_configuration_setting(setting("k", "new"))
    with pytest.raises(ResourceReadOnlyError):
        await client.delete_configuration_setting("k")
    assert not (await client.set_read_only(made, False)).read_only
    await client.delete_configuration_setting("k")


async def test_revisions_are_kept_newest_first_and_outlive_the_key(client: Any) -> None:
    for value in ("one", "two", "three"):
        await client.set_configuration_setting(setting("k", value))
    await client.set_configuration_setting(setting("other"))
    await client.delete_configuration_setting("k")
    assert [one.value async for one in client.list_revisions("k")] == ["three", "two", "one"]


async def test_what_is_too_large_or_no_key_is_refused(client: Any) -> None:
    with pytest.raises(HttpResponseError) as caught:
        await client.set_configuration_setting(setting("k", "x" * 10_240))
    assert caught.value.status_code == 413
    with pytest.raises(HttpResponseError) as caught:
        await client.set_configuration_setting(setting("100%"))
    assert caught.value.status_code == 400


async def test_signature_with_another_key_is_refused(server: AppConfigServer) -> None:
    for wrong in (AccessKey(secret="bm90IGl0"), AccessKey(id="other")):
        text = f"Endpoint={server.endpoint};Id={wrong.id};Secret={wrong.secret}"
        async with opened(text) as stranger:
            with pytest.raises(ClientAuthenticationError):
                await stranger.get_configuration_setting("k")
    assert [seen.status for seen in server.requests] == [401, 401]


async def test_switches_fail_as_app_configuration_does(server: AppConfigServer, client: Any) -> None:
    server.put("k", "v")
    server.faults.throttled_seconds = 3
    with pytest.raises(HttpResponseError) as caught:
        await client.get_configuration_setting("k")
    assert (caught.value.status_code, caught.value.response.headers["Retry-After"]) == (429, "3")
    server.faults.clear()
    server.faults.unauthorized = True
    with pytest.raises(ClientAuthenticationError):
        await client.get_configuration_setting("k")
    server.faults.clear()
    server.faults.slow_seconds = 30
    with pytest.raises(ServiceResponseTimeoutError):
        await client.get_configuration_setting("k", read_timeout=0.1)
    server.faults.clear()
    server.faults.writes_left = 1
    await client.set_configuration_setting(setting("k"))
    with pytest.raises(HttpResponseError) as caught:
        await client.set_configuration_setting(setting("k"))
    assert caught.value.status_code == 503


async def test_outage_keeps_the_key_values(server: AppConfigServer, client: Any) -> None:
    server.put("k", "kept")
    await server.stop()
    with pytest.raises(ServiceRequestError):
        await client.get_configuration_setting("k")
    await server.start()
    assert (await client.get_configuration_setting("k")).value == "kept"
