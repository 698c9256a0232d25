"""A namespace and a credential by name, with Azure's real SDKs against stand-ins on loopback.

What is not real: the namespace is the test server behind TLS of a test authority, reached by the SDK's own custom
endpoint, and the tokens come from a stand-in of the platform's managed identity. Azure itself is never asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from azure.servicebus import TransportType
from tests.azure.stand_ins import HOST, Issuer, serve_issuer
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ProvisionedBus, ServerThread, close_broken_sockets

from lucius.buses.servicebus import ServiceBusOptions
from lucius.buses.servicebus.entities import plan
from lucius.buses.servicebus.identity import RETRIES
from lucius.buses.servicebus.provisioning import administration
from lucius.ports.bus import BusUnavailable, Subscription
from lucius.testing.bus_publishing import ids, message
from lucius.testing.servicebus.certificates import TestCertificates, make_certificates
from lucius.testing.servicebus.tokens import SharedKey

NAMESPACE = "lanes.servicebus.windows.net"
AUDIENCE = "https://servicebus.azure.net/"
OCR = Subscription(topic="lane", name="ocr", where={"service": "ocr"})

pytestmark = SDK_LEAVES_SOCKETS


@pytest.fixture
async def issuer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Issuer]:
    async with serve_issuer(Issuer()) as issuer:
        for name, value in issuer.app_service.items():
            monkeypatch.setenv(name, value)
        yield issuer


@pytest.fixture
async def server(issuer: Issuer) -> AsyncIterator[ServerThread]:
    """Takes tokens that were issued for Service Bus, and nothing else."""
    thread = ServerThread(SharedKey("tests", "a key that nobody uses here"))
    thread.server.tokens.is_issued = lambda token: issuer.tokens.get(token) == AUDIENCE
    yield thread
    await close_broken_sockets(thread.server.port)
    thread.end()


@pytest.fixture
def certificates(tmp_path: Path) -> TestCertificates:
    return make_certificates(HOST, tmp_path)


@pytest.fixture
async def namespace(
    server: ServerThread, certificates: TestCertificates, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServiceBusOptions]:
    """Options as for Azure; only where its name leads to is different."""
    async with tls_in_front_of(server.server.port, certificates.context) as port:
        endpoint = {
            "custom_endpoint_address": f"sb://{HOST}:{port}",
            "transport_type": TransportType.Amqp,
            "connection_verify": str(certificates.ca_file),
            "retry_total": 0,
        }
        monkeypatch.setattr("lucius.buses.servicebus.identity.RETRIES", RETRIES | endpoint)
        yield ServiceBusOptions(namespace=NAMESPACE, credential="managed")
        await close_broken_sockets(port)


@asynccontextmanager
async def tls_in_front_of(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ssl.SSLError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(pass_on(reader, their_writer), pass_on(their_reader, writer))

    listening = await asyncio.start_server(connect, HOST, 0, ssl=context)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def test_messages_travel_as_the_managed_identity(
    server: ServerThread, namespace: ServiceBusOptions, issuer: Issuer
) -> None:
    async with ProvisionedBus(server, server.clock(), options=namespace) as bus:
        await bus.declare([OCR])
        assert await bus.publish([message("m1", properties={"service": "ocr"})]) == [None]
        taken = await bus.receive(["lane"], "ocr", 1, 30.0, 20.0)
        assert ids(taken) == ["m1"]
        await bus.settle([taken[0].ref])
        assert await bus.health() == f"Service Bus at {NAMESPACE}"
    assert set(issuer.tokens.values()) == {AUDIENCE}
    assert {path.partition("resource=")[2] for path in issuer.asked} == {AUDIENCE}


async def test_token_that_the_namespace_refuses_sends_nothing(
    server: ServerThread, namespace: ServiceBusOptions
) -> None:
    server.server.tokens.is_issued = lambda token: False
    async with ProvisionedBus(server, server.clock(), options=namespace) as bus:
        await bus.declare([OCR])
        # With a custom endpoint, the SDK calls a refused token an error of the connection; the test of a wrong key
        # shows the sentence for it.
        with pytest.raises(BusUnavailable, match=r"Service Bus at lanes\.servicebus\.windows\.net .* topic lane"):
            await bus.publish([message("m1", properties={"service": "ocr"})])
        assert await asyncio.to_thread(server.bodies) == []


async def test_identity_that_cannot_be_had_is_said(
    server: ServerThread, namespace: ServiceBusOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_HEADER", "of somebody else")
    async with ProvisionedBus(server, server.clock(), options=namespace) as bus:
        await bus.declare([OCR])
        with pytest.raises(BusUnavailable, match=r"refuses this process at topic lane.*LUCIUS_AZURE_CREDENTIAL"):
            await bus.publish([message("m1", properties={"service": "ocr"})])


async def test_topics_are_created_and_compared_as_the_managed_identity(server: ServerThread, tmp_path: Path) -> None:
    served = server.administration(tmp_path)
    port = served.administration.partition(f"{HOST}:")[2].partition(";")[0]
    options = ServiceBusOptions(
        namespace=f"{HOST}:{port}", credential="managed", administration_ca_file=served.administration_ca_file
    )
    wanted = plan([OCR])
    async with administration(options) as provisioner:
        assert await provisioner.differences(wanted) == ["topic lane is missing"]
        await provisioner.provision(wanted)
        assert await provisioner.differences(wanted) == []
