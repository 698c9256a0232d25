"""The sender against a receiver that really listens."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lucius.azure.key_vault import SecretUnreadable
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.ledger import LedgerUnavailable, Webhook
from lucius.ports.registry import Tenant
from lucius.webhooks.sender import BACKOFF_SECONDS

JOB_ID = "018f6b1e-7c00-7000-8000-0123456789ab"


async def test_a_call_says_what_became_of_the_job(rig: Any) -> None:
    await rig.owe(failed=True)
    async with rig.sender():
        assert await rig.outcomes(1) == ["delivered"]
    ((path, headers, body),) = rig.receiver.calls
    assert path == "/hook?key=hidden"
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == f"msg_{JOB_ID}"
    assert headers["webhook-timestamp"] == "1700000000"
    assert "webhook-signature" not in headers, "this tenant has named no secret"
    assert headers["host"] == f"127.0.0.1:{rig.receiver.port}"
    assert json.loads(body) == {
        "type": "job.completed",
        "timestamp": "2023-11-14T22:13:19.000Z",
        "data": {
            "jobId": JOB_ID,
            "tenant_id": "acme",
            "status": "FAILED_FINAL",
            "request_type": "OCR",
            "completed_at": "2023-11-14T22:13:19.000Z",
            "error": {"code": "STEP_FAILED", "message": "the scan is blank"},
        },
    }
    assert rig.row() == Webhook(job_id=JOB_ID, url=rig.receiver.url, tenant_id="acme", attempts=1, next_at=0)


@pytest.mark.parametrize("plain", [True, False])
async def test_a_call_is_signed_with_the_tenants_secret(rig: Any, plain: bool) -> None:
    secret = b"0123456789abcdef0123456789abcdef"
    rig.registry.tenants["acme"] = Tenant(id="acme", webhook_secret_env="ACME_SECRET")
    rig.environ["ACME_SECRET"] = secret.decode() if plain else "whsec_" + base64.b64encode(secret).decode()
    await rig.owe()
    async with rig.sender():
        await rig.outcomes(1)
    ((_, headers, body),) = rig.receiver.calls
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize("is_in_variable", [True, False])
async def test_a_secret_may_be_a_reference_and_unreadable_for_a_while(rig: Any, is_in_variable: bool) -> None:
    reference = "keyvault://acme/webhooks"
    rig.environ["ACME_SECRET"] = reference
    rig.registry.tenants["acme"] = (
        Tenant(id="acme", webhook_secret_env="ACME_SECRET")
        if is_in_variable
        else Tenant(id="acme", webhook_secret=reference)
    )
    readable: list[str] = []

    async def read_secret(place: str, text: str) -> str:
        assert text == reference
        if not readable:
            raise SecretUnreadable("the secret webhooks of the vault acme cannot be read")
        return readable[0]

    await rig.owe()
    async with rig.sender(read_secret=read_secret):
        assert await rig.outcomes(1) == ["failed"]
        assert "unusable: the secret webhooks of the vault acme cannot be read" in rig.row().last_error
        readable.append("now-there-is-one")
        rig.clock.at = rig.row().next_at
        assert await rig.outcomes(2) == ["failed", "delivered"]
    ((_, headers, body),) = rig.receiver.calls
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(b"now-there-is-one", content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize("value", [None, "", "whsec_!"])
async def test_a_call_that_cannot_be_signed_is_not_made_and_waits(rig: Any, value: str | None) -> None:
    rig.registry.tenants["acme"] = Tenant(id="acme", webhook_secret_env="ACME_SECRET")
    if value is not None:
        rig.environ["ACME_SECRET"] = value
    await rig.owe()
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
        assert "ACME_SECRET is unusable" in rig.row().last_error
        assert rig.receiver.calls == []
        rig.environ["ACME_SECRET"] = "now-there-is-one"
        rig.clock.at = rig.row().next_at
        assert await rig.outcomes(2) == ["failed", "delivered"]
    assert len(rig.receiver.calls) == 1


async def test_failed_calls_are_made_again_with_growing_waits_and_then_given_up(rig: Any) -> None:
    rig.receiver.statuses = [500]
    rig.set(webhook_attempts_max=9)
    await rig.owe()
    waits = []
    async with rig.sender():
        for count in range(1, 10):
            await rig.outcomes(count)
            row = rig.row()
            assert row.attempts == count
            assert row.last_error == "the receiver answered 500"
            if row.next_at:
                waits.append((row.next_at - rig.clock.at) / 1000)
                await asyncio.sleep(0.03)
                assert len(rig.receiver.calls) == count, "not before its time"
                rig.clock.at = row.next_at
    assert waits == [*BACKOFF_SECONDS, BACKOFF_SECONDS[-1]]
    assert rig.watcher.outcomes == ["failed"] * 8 + ["given_up"]
    assert rig.row().next_at == 0
    assert len({body for _, _, body in rig.receiver.calls}) == 1
    assert len({headers["webhook-id"] for _, headers, _ in rig.receiver.calls}) == 1
    assert len({headers["webhook-timestamp"] for _, headers, _ in rig.receiver.calls}) == 9


async def test_a_later_success_ends_it(rig: Any) -> None:
    rig.receiver.statuses = [503, 204]
    await rig.owe()
    async with rig.sender():
        await rig.outcomes(1)
        rig.clock.at = rig.row().next_at
        assert await rig.outcomes(2) == ["failed", "delivered"]
    assert rig.row().last_error is None


async def test_gone_is_taken_at_its_word(rig: Any) -> None:
    rig.receiver.statuses = [410]
    await rig.owe()
    async with rig.sender():
        assert await rig.outcomes(1) == ["given_up"]
    assert "410" in rig.row().last_error
    assert rig.row().next_at == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(rig: Any, status: int) -> None:
    rig.receiver.statuses = [status]
    await rig.owe()
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
    assert [path for path, _, _ in rig.receiver.calls] == ["/hook?key=hidden"]
    assert "redirects are not followed" in rig.row().last_error


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"])
async def test_private_addresses_are_given_up_without_a_connection(rig: Any, host: str) -> None:
    rig.set(webhook_private_addresses_allowed=False)
    await rig.owe(f"http://{host}:{rig.receiver.port}/hook")
    async with rig.sender():
        assert await rig.outcomes(1) == ["given_up"]
    assert rig.receiver.calls == []
    assert "webhooks are not sent there" in rig.row().last_error


async def test_metadata_addresses_stay_closed_whatever_is_allowed(rig: Any) -> None:
    await rig.owe("http://169.254.169.254/latest/meta-data")
    async with rig.sender():
        assert await rig.outcomes(1) == ["given_up"]
    assert "link-local" in rig.row().last_error


async def test_the_address_that_was_checked_is_the_one_called(rig: Any) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.255.255.1"]

    await rig.owe(f"http://hook.example:{rig.receiver.port}/hook")
    async with rig.sender(resolver=rebinding):
        assert await rig.outcomes(1) == ["delivered"]
    assert asked == ["hook.example"]
    assert rig.receiver.calls[0][1]["host"] == f"hook.example:{rig.receiver.port}"


async def test_the_next_address_is_tried_where_one_does_not_connect(rig: Any) -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    await rig.owe(f"http://hook.example:{rig.receiver.port}/hook")
    async with rig.sender(resolver=two):
        assert await rig.outcomes(1) == ["delivered"]


async def test_a_name_that_does_not_resolve_is_tried_again(rig: Any) -> None:
    await rig.owe("http://no-such-name.invalid/hook?key=hidden")
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
    assert "no-such-name.invalid" in rig.row().last_error
    assert "hidden" not in rig.row().last_error


async def test_a_receiver_that_is_not_there_is_tried_again(rig: Any) -> None:
    await rig.owe("http://127.0.0.1:9/hook?key=hidden")
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
    assert rig.row().last_error == "cannot connect to 127.0.0.1: refused or unreachable"


async def test_a_slow_receiver_is_left_at_the_deadline(rig: Any) -> None:
    rig.set(webhook_timeout_seconds=0.2)
    rig.receiver.delay_seconds = 2.0
    await rig.owe()
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
    assert rig.row().last_error == "no answer within 0.2 s"


async def test_a_long_answer_is_not_read(rig: Any) -> None:
    rig.receiver.body = b"x" * 50_000_000
    await rig.owe()
    async with rig.sender():
        assert await rig.outcomes(1) == ["delivered"]


async def test_an_answer_that_never_ends_is_left_after_a_little(rig: Any) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"400\r\n" + b"x" * 1_024 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    await rig.owe(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    async with rig.sender():
        assert await rig.outcomes(1) == ["delivered"]
    server.close()


async def test_an_answer_that_is_not_http_fails(rig: Any) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        writer.close()

    server = await asyncio.start_server(rude, "127.0.0.1", 0)
    await rig.owe(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
    assert "broke off" in rig.row().last_error
    server.close()


@pytest.mark.parametrize("url", ["ftp://x.example/", "http://user:pass@x.example/", "nonsense", "http://"])
async def test_an_address_that_cannot_be_called_fails(rig: Any, url: str) -> None:
    await rig.owe(url)
    async with rig.sender():
        assert await rig.outcomes(1) == ["failed"]
    assert "pass" not in rig.row().last_error


async def test_many_are_called_and_few_at_a_time(rig: Any, job_ids: Callable[[int], list[str]]) -> None:
    running, most = 0, 0

    async def counted(host: str, port: int) -> list[str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return ["127.0.0.1"]

    for job_id in job_ids(40):
        await rig.owe(job_id=job_id)
    async with rig.sender(resolver=counted):
        assert await rig.outcomes(40) == ["delivered"] * 40
    assert 1 < most <= 8
    assert len({headers["webhook-id"] for _, headers, _ in rig.receiver.calls}) == 40


class _Flaky(MemoryLedger):
    due_fails = done_fails = 1

    async def webhooks_due(self, now: int, after_tenant: str, tenants_max: int, per_tenant_max: int) -> list[Webhook]:
        if self.due_fails:
            self.due_fails -= 1
            raise LedgerUnavailable("gone")
        return await super().webhooks_due(now, after_tenant, tenants_max, per_tenant_max)

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        if self.done_fails:
            self.done_fails -= 1
            raise LedgerUnavailable("gone")
        await super().webhook_done(webhook, delivered)


async def test_a_call_whose_outcome_was_not_written_is_made_again_when_its_claim_has_run_out(rig: Any) -> None:
    rig.ledger = _Flaky()
    await rig.owe()
    async with rig.sender():
        async with asyncio.timeout(5):
            while len(rig.watcher.failures) < 2:
                await asyncio.sleep(0.005)
        assert rig.row().attempts == 0
        rig.clock.at = rig.row().next_at
        assert await rig.outcomes(1) == ["delivered"]
    assert len(rig.receiver.calls) == 2


async def test_a_job_that_is_gone_is_given_up(rig: Any) -> None:
    await rig.owe()
    rig.ledger._jobs.clear()
    async with rig.sender():
        assert await rig.outcomes(1) == ["given_up"]


async def test_stopping_lets_a_call_end_and_leaves_a_late_one(rig: Any) -> None:
    rig.receiver.delay_seconds = 0.1
    await rig.owe()
    async with rig.sender():
        while not rig.receiver.calls:
            await asyncio.sleep(0.005)
    assert rig.watcher.outcomes == ["delivered"]
    rig.receiver.delay_seconds = 5.0
    rig.set(stop_seconds=0.05)
    await rig.owe(job_id="018f6b1e-7c00-7000-8000-000000000001")
    async with rig.sender():
        while len(rig.receiver.calls) < 2:
            await asyncio.sleep(0.005)
    assert rig.watcher.outcomes == ["delivered"]
    row = rig.row("018f6b1e-7c00-7000-8000-000000000001")
    assert row.attempts == 0
    assert row.next_at > rig.clock.at, "its claim stands until it runs out"


# --- TLS -------------------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for this name, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + built.public_bytes(Encoding.PEM)
    path.write_bytes(pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = ssl.create_default_context(cadata=built.public_bytes(Encoding.PEM).decode())
    return server, client


@pytest.fixture
async def secure(rig: Any, tmp_path: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    server, client = certificate(tmp_path, "hook.example")
    app = web.Application()
    app.router.add_post("/{path:.*}", rig.receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    yield runner.addresses[0][1], client
    await runner.cleanup()


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_the_certificate_of_the_name_is_checked_though_an_address_is_called(
    rig: Any, secure: tuple[int, ssl.SSLContext]
) -> None:
    port, context = secure
    await rig.owe(f"https://hook.example:{port}/hook")
    await rig.owe(f"https://other.example:{port}/hook", job_id="018f6b1e-7c00-7000-8000-000000000001")
    async with rig.sender(resolver=loopback, ssl_context=context):
        assert sorted(await rig.outcomes(2)) == ["delivered", "failed"]
    assert rig.row().last_error is None
    assert "certificate is not valid" in rig.row("018f6b1e-7c00-7000-8000-000000000001").last_error
    assert len(rig.receiver.calls) == 1


async def test_a_certificate_that_nobody_trusts_fails(rig: Any, secure: tuple[int, ssl.SSLContext]) -> None:
    port, _ = secure
    await rig.owe(f"https://hook.example:{port}/hook")
    async with rig.sender(resolver=loopback):
        assert await rig.outcomes(1) == ["failed"]
    assert "certificate is not valid" in rig.row().last_error


async def test_retry_set_while_the_clock_was_ahead_comes_after_its_wait(rig: Any) -> None:
    rig.receiver.statuses = [503, 204]
    await rig.owe()
    began = rig.clock.at
    async with rig.sender():
        rig.clock.at = began + 3_600_000
        await rig.outcomes(1)
        rig.clock.at = began
        async with asyncio.timeout(10):
            while rig.row().next_at > began + 60_000:
                await asyncio.sleep(0.005)
        assert rig.watcher.outcomes == ["failed"]
        rig.clock.at = rig.row().next_at
        assert await rig.outcomes(2) == ["failed", "delivered"]
