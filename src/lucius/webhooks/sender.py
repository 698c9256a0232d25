"""The sender: makes pending calls, with growing waits, until they are answered or given up.

Calls are made at least once. A process that dies during a call leaves its claim behind; when that expires, any process
calls again with the same `webhook-id`, by which the receiver recognizes the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import NamedTuple

import msgspec
from msgspec import structs

from lucius.azure.key_vault import BadReference, SecretUnreadable
from lucius.clocks import SetBack
from lucius.domain.job import Job
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after, iso
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger, Webhook
from lucius.ports.observer import Observer
from lucius.ports.registry import Registry, Tenant
from lucius.public_addresses import AddressRefused, AddressUnknown
from lucius.settings import Settings
from lucius.webhooks.addresses import Resolver
from lucius.webhooks.call import Caller, CallFailed
from lucius.webhooks.retry_after import wait_wanted
from lucius.webhooks.signing import SecretUnusable, read_secrets, sign
from lucius.webhooks.slots import CallSlots

POLL_SECONDS = 1.0
LOOK_SECONDS = 60.0
"""How often to look for waits that are too long; at once if the clock was set back."""
TENANTS_MAX = 64
DUE_PER_TENANT_MAX = 32
"""Rows read in one round: enough to fill every slot although some tenants and hosts have no free slot."""
CLAIM_MARGIN_SECONDS = 30.0
BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 10_800.0, 21_600.0)
"""The last one repeats."""
JITTER = 0.2
ERROR_CHARS_MAX = 500

log = logging.getLogger("lucius.webhooks")
_encode = msgspec.json.Encoder().encode


ReadSecret = Callable[[str, str], Awaitable[str]]
"""Where a value stands, and the value: a secret, or a reference to one. Returns the secret."""


async def _as_it_is(place: str, text: str) -> str:
    return text


class _GivenUp(Exception):
    """Calling again would not help."""


class _Attempted(NamedTuple):
    """The outcome of one call."""

    error: str | None
    may_retry: bool = True
    wait_seconds: float = 0.0
    """The receiver's `Retry-After`."""


class WebhookSender:
    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        clock: Clock,
        settings: Settings,
        observer: Observer,
        *,
        environ: Mapping[str, str] | None = None,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        poll_seconds: float = POLL_SECONDS,
        read_secret: ReadSecret | None = None,
    ) -> None:
        """`read_secret`: makes of a reference to a secret the secret; without it there are none."""
        self._ledger = ledger
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._observer = observer
        self._environ = os.environ if environ is None else environ
        self._resolver = resolver
        self._ssl_context = ssl_context
        self._read_secret = read_secret or _as_it_is
        self._poll_seconds = poll_seconds
        self._calls: set[asyncio.Task[None]] = set()
        self._set_back = SetBack()
        self._look_at = 0.0
        self._slots = CallSlots(
            settings.webhook_calls_max, settings.webhook_calls_per_tenant_max, settings.webhook_calls_per_host_max
        )
        self._last_tenant = ""
        """Tenant of the last call begun: the next round starts with the tenant after it."""
        self._loop: asyncio.Task[None] | None = None
        self._caller: Caller | None = None

    async def __aenter__(self) -> WebhookSender:
        settings = self._settings
        self._caller = Caller(
            settings.webhook_timeout_seconds,
            settings.webhook_calls_max,
            settings.webhook_private_addresses_allowed,
            self._resolver,
            self._ssl_context,
        )
        self._loop = asyncio.create_task(self._run(), name="webhooks")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Start no new calls, and give those in progress a short time to end."""
        assert self._loop is not None
        assert self._caller is not None
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=self._settings.stop_seconds)
            for call in late:
                call.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._caller.close()

    async def _run(self) -> None:
        while True:
            if self._slots.free:
                await self._take_up()
            if self._calls:
                # There may be more to call: continue as soon as one call ends.
                await asyncio.wait(self._calls, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(self._poll_seconds)

    async def _take_up(self) -> None:
        """Begin the due calls that get a slot. Rows are claimed only then: other processes may call the rest."""
        now = self._clock.now()
        claim_until = after(now, self._claim_seconds)
        taken: list[Webhook] = []
        claimed: set[str] = set()
        try:
            if self._set_back.noticed(now) or time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_SECONDS
                await self._ledger.shorten_webhooks(self._latest_calls(now))
            due = await self._ledger.webhooks_due(now, self._last_tenant, TENANTS_MAX, DUE_PER_TENANT_MAX)
            taken = self._slots.take(due)
            if due:
                self._last_tenant = (taken or due)[-1].tenant_id
            if taken:
                claimed = await self._ledger.claim_webhooks([one.job_id for one in taken], now, claim_until)
        except Exception as error:
            self._observer.loop_failed("webhooks", error)
        else:
            self._observer.loop_worked("webhooks")
        for webhook in taken:
            if webhook.job_id in claimed:
                call = asyncio.create_task(self._call(webhook), name="webhook")
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            else:
                self._slots.give_back(webhook)

    @property
    def _claim_seconds(self) -> float:
        return self._settings.webhook_timeout_seconds + CLAIM_MARGIN_SECONDS

    def _latest_calls(self, now: Instant) -> list[Instant]:
        """The latest next call of a webhook after 0, 1, 2 … calls. A longer wait was written by a clock that was
        ahead."""
        waits = [max(wait * (1 + JITTER), self._claim_seconds) for wait in (0.0, *BACKOFF_SECONDS)]
        return [after(now, wait + CLOCK_TOLERANCE_SECONDS) for wait in waits]

    async def _call(self, webhook: Webhook) -> None:
        try:
            attempted = await self._try(webhook)
            done = self._after(webhook, attempted)
            await self._ledger.webhook_done(done, attempted.error is None)
        except Exception as failure:
            # The claim expires, and a process calls again.
            self._observer.failed("webhook", failure)
            return
        finally:
            self._slots.give_back(webhook)
        self._tell(done, attempted.error)

    async def _try(self, webhook: Webhook) -> _Attempted:
        """Call once."""
        assert self._caller is not None
        try:
            job = (await self._ledger.load([webhook.job_id])).get(webhook.job_id)
            if job is None:
                raise _GivenUp("the job is no longer in the ledger")
            now = self._clock.now()
            body = webhook_body(job)
            reply = await self._caller.post(webhook.url, body, await self._headers(job, now, body))
        except (_GivenUp, AddressRefused) as error:
            return _Attempted(str(error), may_retry=False)
        except (AddressUnknown, CallFailed, SecretUnusable) as error:
            return _Attempted(str(error))
        status = reply.status
        if 200 <= status < 300:
            return _Attempted(None)
        if status == 410:
            return _Attempted("the receiver answered 410: it does not want further calls", may_retry=False)
        if 300 <= status < 400:
            return _Attempted(f"the receiver answered {status}: redirects are not followed")
        wait_seconds = wait_wanted(reply.retry_after, self._clock.now()) if status in (429, 503) else 0.0
        return _Attempted(f"the receiver answered {status}", wait_seconds=wait_seconds)

    async def _headers(self, job: Job, now: Instant, body: bytes) -> dict[str, str]:
        message_id, timestamp = f"msg_{job.job_id}", now // 1000
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "lucius-webhooks/1",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
        }
        tenant = self._registry.snapshot().tenants.get(job.spec.tenant_id)
        if tenant is not None and (tenant.webhook_secret_env or tenant.webhook_secret):
            headers["webhook-signature"] = sign(await self._secrets_of(tenant), message_id, timestamp, body)
        return headers

    async def _secrets_of(self, tenant: Tenant) -> tuple[bytes, ...]:
        if tenant.webhook_secret_env is not None:
            place, text = tenant.webhook_secret_env, self._environ.get(tenant.webhook_secret_env, "")
        else:
            place, text = f"the webhook secret of tenant {tenant.id}", tenant.webhook_secret or ""
        try:
            return read_secrets(await self._read_secret(place, text))
        except (SecretUnusable, SecretUnreadable, BadReference) as error:
            raise SecretUnusable(f"not sent, because it cannot be signed: {place} is unusable: {error}") from None

    def _after(self, webhook: Webhook, attempted: _Attempted) -> Webhook:
        """The row to write: `next_at` is the time of the next call, or 0 for none."""
        attempts = webhook.attempts + 1
        next_at = 0
        error = attempted.error
        if error is not None and attempted.may_retry and attempts < self._settings.webhook_attempts_max:
            wait = BACKOFF_SECONDS[min(attempts, len(BACKOFF_SECONDS)) - 1]
            wait = max(wait, attempted.wait_seconds) * (1 + JITTER * self._clock.jitter())
            next_at = after(self._clock.now(), wait)
        return structs.replace(
            webhook,
            attempts=attempts,
            next_at=next_at,
            last_error=None if error is None else error[:ERROR_CHARS_MAX],
            asked_wait_ms=round(attempted.wait_seconds * (1 + JITTER) * 1000),
        )

    def _tell(self, webhook: Webhook, error: str | None) -> None:
        extra = {"job_id": webhook.job_id, "tenant_id": webhook.tenant_id}
        if error is None:
            self._observer.webhook_called("delivered")
        elif webhook.next_at > 0:
            self._observer.webhook_called("failed")
            log.info("webhook of job %s failed, call %d: %s", webhook.job_id, webhook.attempts, error, extra=extra)
        else:
            self._observer.webhook_called("given_up")
            log.warning("webhook of job %s given up after %d: %s", webhook.job_id, webhook.attempts, error, extra=extra)


def webhook_body(job: Job) -> bytes:
    """The body of the call: the same bytes at every try."""
    spec = job.spec
    completed_at = None if job.completed_at is None else iso(job.completed_at)
    error = None if job.error is None else {"code": job.error.code, "message": job.error.message}
    return _encode(
        {
            "type": "job.completed",
            "timestamp": completed_at,
            "data": {
                "jobId": spec.job_id,
                "tenant_id": spec.tenant_id,
                "status": job.status.value,
                "request_type": spec.request_type,
                "completed_at": completed_at,
                "error": error,
            },
        }
    )
