"""The settings of the connection to Temporal do what they say: TLS, API key, namespace, metrics, traces."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client
from tests.temporal.shapes import quick_settings
from tests.temporal.tls_proxy import SERVER_NAME, Authority, tls_proxy

import lucius.bootstrap.app
from lucius.api.app import create_front
from lucius.bootstrap import open_app
from lucius.domain.errors import InfrastructureError
from lucius.engines.temporal.client import connect
from lucius.engines.temporal.settings import TemporalSettings
from lucius.settings import Settings, SettingsError
from lucius.telemetry.traces import ExportedTraces
from lucius.testing.engine_harness import PATIENCE_SECONDS

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
TRACEPARENT = f"00-{TRACE_ID:032x}-b7ad6b7169203331-01"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


async def answers(client: Client) -> bool:
    return await client.service_client.check_health()


# --- TLS -------------------------------------------------------------------------------------------------------------


async def test_tls_with_ca_and_server_name(temporal_address: str, authority: Authority) -> None:
    async with tls_proxy(temporal_address, authority.issue(SERVER_NAME)) as proxy:
        settings = TemporalSettings(
            address=proxy.address, tls=True, tls_ca_file=authority.cert, tls_server_name=SERVER_NAME
        )
        assert await answers(await connect(settings))
    assert proxy.sent.startswith(b"PRI * HTTP/2.0"), "it went through the proxy"


async def test_ca_file_alone_turns_tls_on(temporal_address: str, authority: Authority) -> None:
    async with tls_proxy(temporal_address, authority.issue(SERVER_NAME)) as proxy:
        settings = TemporalSettings(address=proxy.address, tls_ca_file=authority.cert, tls_server_name=SERVER_NAME)
        assert await answers(await connect(settings))


async def test_client_certificate_is_shown(temporal_address: str, authority: Authority) -> None:
    ours = authority.issue("lucius")
    async with tls_proxy(temporal_address, authority.issue(SERVER_NAME), clients_ca=authority.cert) as proxy:
        settings = TemporalSettings(
            address=proxy.address,
            tls_ca_file=authority.cert,
            tls_cert_file=ours.cert,
            tls_key_file=ours.key,
            tls_server_name=SERVER_NAME,
        )
        assert await answers(await connect(settings))
        assert set(proxy.client_names) == {"lucius"}
        with pytest.raises(InfrastructureError, match=f"Temporal at {proxy.address} is unreachable"):
            await connect(replace(settings, tls_cert_file="", tls_key_file=""))


async def test_server_of_another_authority_is_refused(
    temporal_address: str, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "theirs")
    async with tls_proxy(temporal_address, stranger.issue(SERVER_NAME)) as proxy:
        settings = TemporalSettings(address=proxy.address, tls_ca_file=authority.cert, tls_server_name=SERVER_NAME)
        with pytest.raises(InfrastructureError, match=r"unreachable.*LUCIUS_TEMPORAL_TLS_CA_FILE") as caught:
            await connect(settings)
    assert proxy.address in str(caught.value)
    assert proxy.sent == b""


async def test_server_of_another_name_is_refused(temporal_address: str, authority: Authority) -> None:
    async with tls_proxy(temporal_address, authority.issue("somebody.else")) as proxy:
        settings = TemporalSettings(address=proxy.address, tls_ca_file=authority.cert, tls_server_name=SERVER_NAME)
        with pytest.raises(InfrastructureError, match=r"not trusted.*LUCIUS_TEMPORAL_TLS_SERVER_NAME"):
            await connect(settings)
    assert proxy.sent == b""


async def test_file_that_cannot_be_read_is_named(temporal_address: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(SettingsError, match=r"LUCIUS_TEMPORAL_TLS_CA_FILE=.*missing.pem.*No such file"):
        await connect(TemporalSettings(address=temporal_address, tls_ca_file=missing))


@pytest.mark.parametrize("name", ["tls_cert_file", "tls_key_file"])
async def test_certificate_and_key_go_together(temporal_address: str, authority: Authority, name: str) -> None:
    settings = TemporalSettings(address=temporal_address, **{name: authority.cert})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="go together"):
        await connect(settings)


# --- API key ---------------------------------------------------------------------------------------------------------

HUFFMAN = {
    " ": "010100", "B": "1011101", "e": "00101", "a": "00011", "r": "101100",
    "0": "00000", "1": "00001", "2": "00010", "c": "00100", "o": "00111", "s": "01000", "t": "01001",
}  # fmt: skip
"""As much of RFC 7541, appendix B, as the header of this test needs."""


def in_header_block(text: str) -> bytes:
    bits = "".join(HUFFMAN[letter] for letter in text)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


async def test_api_key_is_sent_as_a_bearer_token_over_tls(temporal_address: str, authority: Authority) -> None:
    key = "test0secret1acrostate2"
    async with tls_proxy(temporal_address, authority.issue(SERVER_NAME)) as proxy:
        settings = TemporalSettings(
            address=proxy.address, tls_ca_file=authority.cert, tls_server_name=SERVER_NAME, api_key=key
        )
        assert await answers(await connect(settings))
        assert in_header_block(f"Bearer {key}") in proxy.sent
        proxy.sent = b""
        assert await answers(await connect(replace(settings, api_key="")))
        assert in_header_block(f"Bearer {key}") not in proxy.sent


async def test_api_key_is_never_sent_in_the_clear(temporal_address: str) -> None:
    """A key alone turns TLS on, which a plain server does not speak."""
    with pytest.raises(InfrastructureError, match="unreachable"):
        await connect(TemporalSettings(address=temporal_address, api_key="test0secret1acrostate2"))


# --- Where it connects -----------------------------------------------------------------------------------------------


async def test_missing_namespace_is_named(temporal_address: str) -> None:
    with pytest.raises(InfrastructureError, match=r"has no namespace nowhere.*LUCIUS_TEMPORAL_NAMESPACE"):
        await connect(TemporalSettings(address=temporal_address, namespace="nowhere"))


async def test_server_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # Bound, and nobody listens.
        with pytest.raises(InfrastructureError, match=f"Temporal at {address} is unreachable"):
            await connect(TemporalSettings(address=address))


# --- Metrics and traces ----------------------------------------------------------------------------------------------


async def test_metrics_address_serves_temporals_metrics(temporal_address: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    client = await connect(TemporalSettings(address=temporal_address, metrics_address=metrics))
    assert await answers(client)
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"http://{metrics}/metrics")).text
    assert "# TYPE temporal_request counter" in text
    assert 'namespace="default"' in text


async def test_one_trace_goes_from_the_caller_into_the_workflow(
    temporal_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    traces = ExportedTraces(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(lucius.bootstrap.app, "open_traces", lambda settings: traces)
    wanted = quick_settings(temporal_address)
    settings = Settings(
        data=str(tmp_path),
        api_key="lk_of_the_trace_test_0123456789",
        engine="temporal",
        temporal_address=temporal_address,
        temporal_task_queue=wanted.task_queue,
    )
    async with open_app(settings) as context:
        transport = httpx.ASGITransport(app=create_front(context))
        headers = {"Authorization": f"Bearer {settings.api_key}", "traceparent": TRACEPARENT}
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius.test", headers=headers) as http:
            answer = await http.post("/v1/commands", json=COMMAND)
        assert answer.status_code == 202, answer.text
        names = ("command.submit", "StartWorkflow:LuciusJob", "RunWorkflow:LuciusJob", "directive.publish")
        spans = await ended(exporter, names)
    assert {name: span.context.trace_id for name, span in spans.items()} == dict.fromkeys(names, TRACE_ID)
    assert spans["command.submit"].parent.span_id == 0xB7AD6B7169203331
    assert spans["StartWorkflow:LuciusJob"].parent.span_id == spans["command.submit"].context.span_id
    assert spans["RunWorkflow:LuciusJob"].parent.span_id == spans["StartWorkflow:LuciusJob"].context.span_id


COMMAND = {
    "tenant_id": "acme",
    "request_type": "OCR",
    "input_ref": "https://documents.example/in/1.pdf",
    "output_ref": "https://documents.example/out/1.json",
    "payload": {"language": "en"},
    "schema_version": "1",
}


async def ended(exporter: InMemorySpanExporter, names: tuple[str, ...]) -> dict[str, Any]:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        spans = {span.name: span for span in exporter.get_finished_spans() if span.name in names}
        if len(spans) == len(names):
            return spans
        assert asyncio.get_running_loop().time() < deadline, f"only {sorted(spans)} of {names}"
        await asyncio.sleep(0.02)
