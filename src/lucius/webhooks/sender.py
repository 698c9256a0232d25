"""The sender: calls what is owed, again and again with growing waits, until it is answered or given up.

Calls are made at least once. A process that dies in the middle leaves its claim behind; when that has run out, any
process calls again under the same `webhook-id`, by which the receiver knows the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from types import TracebackType

import msgspec
from msgspec import structs

from lucius.domain.job import Job
from lucius.domain.time import Instant, after, iso
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger, Webhook
from lucius.ports.observer import Observer
from lucius.ports.registry import Registry
from lucius.settings import Settings
from lucius.webhooks.addresses import AddressRefused, AddressUnknown, Resolver
from lucius.webhooks.call import Caller, CallFailed
from lucius.webhooks.signing import SecretUnusable, read_secrets, sign

POLL_SECONDS = 1.0
CALLS_MAX = 8
CLAIM_MARGIN_SECONDS = 30.0
BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 10_800.0, 21_600.0)
"""The last one repeats."""
JITTER = 0.2
ERROR_CHARS_MAX = 500

log = logging.getLogger("lucius.webhooks")
_encode = msgspec.json.Encoder().encode


class _GivenUp(Exception):
    """There is no use in calling again."""


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
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._observer = observer
        self._environ = os.environ if environ is None else environ
        self._resolver = resolver
        self._ssl_context = ssl_context
        self._poll_seconds = poll_seconds
        self._calls: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._caller: Caller | None = None

    async def __aenter__(self) -> WebhookSender:
        settings = self._settings
        self._caller = Caller(
            settings.webhook_timeout_seconds,
            settings.webhook_private_addresses_allowed,
            self._resolver,
            self._ssl_context,
        )
        self._loop = asyncio.create_task(self._run(), name="webhooks")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take up nothing new, and let the calls under way end if they do so soon."""
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
            free = CALLS_MAX - len(self._calls)
            taken = await self._take_up(free) if free else 0
            if taken == free and self._calls:
                # There may be more: go on as soon as one call has ended.
                await asyncio.wait(self._calls, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(self._poll_seconds)

    async def _take_up(self, limit: int) -> int:
        now = self._clock.now()
        claim_until = after(now, self._settings.webhook_timeout_seconds + CLAIM_MARGIN_SECONDS)
        try:
            due = await self._ledger.webhooks_due(now, limit, claim_until)
        except Exception as error:
            self._observer.failed("webhooks", error)
            return 0
        for webhook in due:
            call = asyncio.create_task(self._call(webhook), name="webhook")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        return len(due)

    async def _call(self, webhook: Webhook) -> None:
        try:
            error, may_retry = await self._try(webhook)
            done = self._after(webhook, error, may_retry)
            await self._ledger.webhook_done(done, error is None)
        except Exception as failure:
            # The claim runs out, and somebody calls again.
            self._observer.failed("webhook", failure)
            return
        self._tell(done, error)

    async def _try(self, webhook: Webhook) -> tuple[str | None, bool]:
        """Call once: what went wrong, if anything, and whether calling again could help."""
        assert self._caller is not None
        try:
            job = (await self._ledger.load([webhook.job_id])).get(webhook.job_id)
            if job is None:
                raise _GivenUp("the job is no longer in the ledger")
            now = self._clock.now()
            body = webhook_body(job)
            status = await self._caller.post(webhook.url, body, self._headers(job, now, body))
        except (_GivenUp, AddressRefused) as error:
            return str(error), False
        except (AddressUnknown, CallFailed, SecretUnusable) as error:
            return str(error), True
        if 200 <= status < 300:
            return None, False
        if status == 410:
            return "the receiver answered 410: it wants no more calls", False
        if 300 <= status < 400:
            return f"the receiver answered {status}: redirects are not followed", True
        return f"the receiver answered {status}", True

    def _headers(self, job: Job, now: Instant, body: bytes) -> dict[str, str]:
        message_id, timestamp = f"msg_{job.job_id}", now // 1000
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "lucius-webhooks/1",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
        }
        tenant = self._registry.snapshot().tenants.get(job.spec.tenant_id)
        variable = tenant.webhook_secret_env if tenant is not None else None
        if variable is not None:
            try:
                secrets = read_secrets(self._environ.get(variable, ""))
            except SecretUnusable as error:
                raise SecretUnusable(f"not sent, since it cannot be signed: {variable} is unusable: {error}") from None
            headers["webhook-signature"] = sign(secrets, message_id, timestamp, body)
        return headers

    def _after(self, webhook: Webhook, error: str | None, may_retry: bool) -> Webhook:
        """The row as it is written: `next_at` is when to call again, or 0 for never."""
        attempts = webhook.attempts + 1
        next_at = 0
        if error is not None and may_retry and attempts < self._settings.webhook_attempts_max:
            wait = BACKOFF_SECONDS[min(attempts, len(BACKOFF_SECONDS)) - 1]
            next_at = after(self._clock.now(), wait * (1 + JITTER * self._clock.jitter()))
        last_error = None if error is None else error[:ERROR_CHARS_MAX]
        return structs.replace(webhook, attempts=attempts, next_at=next_at, last_error=last_error)

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
    """What a receiver gets: the same bytes at every try."""
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
