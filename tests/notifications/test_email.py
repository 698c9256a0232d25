"""E-mail, to a real SMTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.message import Message
from email.policy import default
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP
from msgspec.structs import replace
from tests.notifications.samples import NOW, held

from lucius.domain.notifications import Notice, Recipient
from lucius.notifications.store import PENDING, Notification
from lucius.notifiers.email import EmailNotifier
from lucius.notifiers.failures import NotSent, Refused
from lucius.settings import Settings, SettingsError


class Mailbox:
    """Takes mail as an SMTP server does; refuses addresses by their domain."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.answer = "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.endswith("@nobody.example"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answer.startswith("250"):
            self.messages.append(message_from_bytes(envelope.content, policy=default))
        return self.answer


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
async def settings(mailbox: Mailbox) -> AsyncIterator[Settings]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mailbox, hostname="mail.example", loop=loop), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield Settings(smtp_host="127.0.0.1", smtp_port=port, smtp_tls="off", smtp_from="LUCIUS <lucius@acme.example>")
    server.close()
    await server.wait_closed()


def mail(*addresses: str, **facts: Any) -> Notification:
    recipient = Recipient(name="ops", kind="email", to=addresses or ("ops@acme.example",))
    return row_of(held(recipient, **facts))


def row_of(notice: Notice) -> Notification:
    return Notification(
        notification_id="018bcfe56800-1", owner="runbook:move", recipient_name="ops", cause="batch_held",
        facts=notice.facts, recipient=notice.recipient, status=PENDING, attempts=0, created_at=NOW, due_at=NOW,
        next_at=NOW, ended_at=None, last_error=None,
    )  # fmt: skip


async def test_an_e_mail_says_what_happened_and_has_a_stable_id(settings: Settings, mailbox: Mailbox) -> None:
    notifier = EmailNotifier(settings)
    for _ in range(2):
        await notifier.send(
            mail("a@acme.example", "b@acme.example", reason="zu viele Fehler: 5 €"), "https://l.example/c"
        )
    first, second = mailbox.messages
    assert first["Subject"] == "[LUCIUS] Held: batch 7 of runbook move"
    assert (first["To"], first["From"]) == ("a@acme.example, b@acme.example", "LUCIUS <lucius@acme.example>")
    assert first["Message-ID"] == second["Message-ID"] == "<msg_018bcfe56800-1@acme.example>"
    text = first.get_content()
    assert "zu viele Fehler: 5 €" in text
    assert "https://l.example/c/batches/7" in text


async def test_a_name_with_line_breaks_cannot_add_headers(settings: Settings, mailbox: Mailbox) -> None:
    await EmailNotifier(settings).send(mail(runbook="x\r\nBcc: spy@evil.example"), "")
    assert mailbox.messages[0]["Bcc"] is None


async def test_an_answer_that_may_change_is_tried_again(settings: Settings, mailbox: Mailbox) -> None:
    mailbox.answer = "451 try later"
    with pytest.raises(NotSent, match="451"):
        await EmailNotifier(settings).send(mail(), "")


async def test_addresses_that_are_refused_for_good_end_it(settings: Settings, mailbox: Mailbox) -> None:
    with pytest.raises(Refused, match="550"):
        await EmailNotifier(settings).send(mail("a@nobody.example"), "")
    with pytest.raises(Refused, match="not for a@nobody"):
        await EmailNotifier(settings).send(mail("b@acme.example", "a@nobody.example"), "")
    assert len(mailbox.messages) == 1


async def test_only_allowed_domains_are_written_to(settings: Settings, mailbox: Mailbox) -> None:
    with pytest.raises(Refused, match="LUCIUS_SMTP_DOMAINS"):
        await EmailNotifier(replace(settings, smtp_domains=("Acme.example",))).send(mail("a@rival.example"), "")
    await EmailNotifier(replace(settings, smtp_domains=("Acme.example",))).send(mail("a@acme.example"), "")
    assert len(mailbox.messages) == 1


async def test_no_server_or_one_without_tls_is_said(settings: Settings) -> None:
    with pytest.raises(NotSent, match="LUCIUS_SMTP_HOST"):
        await EmailNotifier(Settings()).send(mail(), "")
    with pytest.raises(NotSent, match="cannot send"):
        await EmailNotifier(replace(settings, smtp_tls="starttls")).send(mail(), "")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"smtp_tls": "maybe"}, "LUCIUS_SMTP_TLS"),
        ({"smtp_host": "mail.example"}, "LUCIUS_SMTP_FROM"),
        ({"smtp_host": "m", "smtp_from": "a@b.example", "smtp_user": "u", "smtp_tls": "off"}, "LUCIUS_SMTP_USER"),
    ],
)
def test_bad_settings_are_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        EmailNotifier(Settings(**given))
