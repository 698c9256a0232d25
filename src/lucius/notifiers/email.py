"""E-mail by SMTP. The library blocks, so each message is sent in a thread, within a deadline."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr

from lucius.notifications import rendering
from lucius.notifications.store import Notification
from lucius.notifiers.failures import NotSent, Refused
from lucius.settings import Settings, SettingsError

SUBJECT_CHARS_MAX = 200
TLS_MODES = ("starttls", "tls", "off")


def check_email_settings(settings: Settings) -> None:
    """Raises `SettingsError`."""
    if settings.smtp_tls not in TLS_MODES:
        raise SettingsError(f"LUCIUS_SMTP_TLS={settings.smtp_tls!r}: must be starttls, tls or off")
    if not settings.smtp_host:
        return
    if "@" not in parseaddr(settings.smtp_from)[1]:
        raise SettingsError("LUCIUS_SMTP_HOST needs LUCIUS_SMTP_FROM, the address that e-mail comes from")
    if settings.smtp_user and settings.smtp_tls == "off":
        raise SettingsError(
            "LUCIUS_SMTP_USER needs LUCIUS_SMTP_TLS=starttls or tls: a password is not sent in the clear"
        )


class EmailNotifier:
    def __init__(self, settings: Settings, ssl_context: ssl.SSLContext | None = None) -> None:
        check_email_settings(settings)
        self._settings = settings
        self._ssl_context = ssl_context

    async def send(self, one: Notification, console: str) -> None:
        """Raises `NotSent` and `Refused`."""
        settings = self._settings
        if not settings.smtp_host:
            raise NotSent("no server for e-mail is configured: set LUCIUS_SMTP_HOST")
        domains = {domain.lower() for domain in settings.smtp_domains}
        outside = [to for to in one.recipient.to if domains and to.rpartition("@")[2].lower() not in domains]
        if outside:
            raise Refused(f"{outside[0]} is outside LUCIUS_SMTP_DOMAINS")
        message = compose(one, console, settings.smtp_from)
        try:
            # The library's own timeout is for each answer; a server that trickles would stretch that.
            async with asyncio.timeout(settings.smtp_timeout_seconds * 3):
                await asyncio.to_thread(self._send, message)
        except TimeoutError:
            raise NotSent(f"the e-mail server did not finish within {settings.smtp_timeout_seconds * 3:g} s") from None

    def _send(self, message: EmailMessage) -> None:
        settings = self._settings
        try:
            with self._connect() as server:
                if settings.smtp_user:
                    server.login(settings.smtp_user, settings.smtp_password)
                refused = server.send_message(message)
        except smtplib.SMTPAuthenticationError as error:
            raise NotSent(f"the e-mail server does not accept LUCIUS_SMTP_USER ({error.smtp_code})") from None
        except smtplib.SMTPRecipientsRefused as error:
            raise _of_codes([code for code, _ in error.recipients.values()]) from None
        except smtplib.SMTPResponseException as error:
            raise NotSent(f"the e-mail server answered {error.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotSent(f"cannot send by {settings.smtp_host}: {type(error).__name__}") from None
        if refused:
            # Others have it: trying again would send it to them twice.
            raise Refused(
                f"the e-mail server took it for some of the addresses, but not for {', '.join(sorted(refused))}"
            )

    def _connect(self) -> smtplib.SMTP:
        settings = self._settings
        host, port, timeout = settings.smtp_host, settings.smtp_port, settings.smtp_timeout_seconds
        context = self._ssl_context or ssl.create_default_context()
        if settings.smtp_tls == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=timeout, context=context)
        server = smtplib.SMTP(host, port, timeout=timeout)
        if settings.smtp_tls == "starttls":
            try:
                server.starttls(context=context)
            except BaseException:
                server.close()
                raise
        return server


def _of_codes(codes: list[int]) -> NotSent | Refused:
    said = f"the e-mail server refused every address ({', '.join(map(str, sorted(set(codes))))})"
    return Refused(said) if all(code >= 500 for code in codes) else NotSent(said)


def compose(one: Notification, console: str, sender: str) -> EmailMessage:
    """The same `Message-ID` at every try, so that a receiver can recognize a message that it has."""
    said = rendering.values(one, console)
    message = EmailMessage()
    message["Subject"] = f"[LUCIUS] {said['title']}"[:SUBJECT_CHARS_MAX]
    message["From"] = sender
    message["To"] = ", ".join(one.recipient.to)
    message["Date"] = format_datetime(datetime.fromtimestamp(one.facts.at / 1000, UTC))
    message["Message-ID"] = f"<{said['id']}@{parseaddr(sender)[1].rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n\n".join(part for part in (said["title"], said["text"], said["link"]) if part) + "\n")
    return message
