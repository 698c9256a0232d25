"""Recipients that are called over HTTP: to a checked address, signed if they have a secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from lucius.azure.key_vault import BadReference, SecretUnreadable
from lucius.domain.time import Instant
from lucius.notifications import rendering
from lucius.notifications.store import Notification
from lucius.notifiers.failures import NotSent, Refused
from lucius.public_addresses import AddressRefused, AddressUnknown
from lucius.webhooks.call import Caller, CallFailed
from lucius.webhooks.retry_after import wait_wanted
from lucius.webhooks.signing import SecretUnusable, read_secrets, sign

ReadSecret = Callable[[str, str], Awaitable[str]]
"""Where a value stands, and the value: a secret, or a reference to one. Returns the secret."""


class CallNotifier:
    def __init__(self, caller: Caller, environ: Mapping[str, str], read_secret: ReadSecret) -> None:
        self._caller = caller
        self._environ = environ
        self._read_secret = read_secret

    async def send(self, one: Notification, console: str, now: Instant) -> None:
        """Raises `NotSent` and `Refused`."""
        body = rendering.body(one, console)
        recipient = one.recipient
        url = await self._value(recipient.url, recipient.url_env, "the address")
        try:
            reply = await self._caller.post(url or "", body, await self._headers(one, now, body))
        except AddressRefused as error:
            raise Refused(str(error)) from None
        except (AddressUnknown, CallFailed, SecretUnusable) as error:
            raise NotSent(str(error)) from None
        if 200 <= reply.status < 300:
            return
        if reply.status == 410:
            raise Refused("the receiver answered 410: it does not want further calls")
        failure = NotSent(f"the receiver answered {reply.status}")
        if reply.status in (429, 503):
            failure.wait_seconds = wait_wanted(reply.retry_after, now)
        raise failure

    async def _headers(self, one: Notification, now: Instant, body: bytes) -> dict[str, str]:
        message_id, timestamp = rendering.message_id(one), now // 1000
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "lucius-notifications/1",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
        }
        secret = await self._value(one.recipient.secret, one.recipient.secret_env, "the secret")
        if secret is not None:
            headers["webhook-signature"] = sign(read_secrets(secret), message_id, timestamp, body)
        return headers

    async def _value(self, value: str | None, variable: str | None, what: str) -> str | None:
        """What a recipient names; None if it names nothing. No message contains it."""
        if variable is not None:
            value = self._environ.get(variable, "").strip()
            if not value:
                raise NotSent(f"{what} is missing: the environment variable {variable} is not set")
        if value is None:
            return None
        try:
            return await self._read_secret(variable or what, value)
        except (SecretUnreadable, BadReference) as error:
            raise NotSent(f"{what} cannot be read: {error}") from None
