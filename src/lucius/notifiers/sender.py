"""The sender: takes due notifications of every database that has some, and tries until they are taken or given up.

Messages are sent at least once. A process that dies while it sends leaves its claim behind; when that expires, any
process sends again under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType

from msgspec import structs

from lucius.clocks import SetBack
from lucius.domain.notifications import EMAIL
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, after
from lucius.notifications import store
from lucius.notifications.store import DELIVERED, GIVEN_UP, Notification
from lucius.notifiers.calls import CallNotifier, ReadSecret
from lucius.notifiers.email import EmailNotifier
from lucius.notifiers.failures import NotSent, Refused
from lucius.ports.clock import Clock
from lucius.ports.database import Database
from lucius.ports.observer import Observer
from lucius.settings import Settings
from lucius.webhooks.addresses import Resolver
from lucius.webhooks.call import Caller
from lucius.webhooks.sender import BACKOFF_SECONDS, CLAIM_MARGIN_SECONDS, ERROR_CHARS_MAX, JITTER

POLL_SECONDS = 1.0
UPKEEP_SECONDS = 60.0
SENDS_MAX = 16
SENDS_PER_OWNER_MAX = 4
"""Of one runbook or tenant: a receiver that does not answer must not delay those of others."""
KEPT_SECONDS = 14 * 86_400.0
"""How long a notification is listed after its end."""
FORGOTTEN_AT_ONCE = 500
WAIT_SECONDS_MAX = 366 * 86_400.0
"""Longer than any interval, and so than any wait."""

log = logging.getLogger("lucius.notifications")


class NotificationSender:
    def __init__(
        self,
        databases: Sequence[Database],
        clock: Clock,
        settings: Settings,
        observer: Observer,
        read_secret: ReadSecret,
        *,
        environ: Mapping[str, str] | None = None,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._databases = databases
        self._clock = clock
        self._settings = settings
        self._observer = observer
        self._poll_seconds = poll_seconds
        self._console = settings.console_address if settings.has_console else ""
        self._email = EmailNotifier(settings, ssl_context)
        self._caller = Caller(
            settings.webhook_timeout_seconds,
            SENDS_MAX,
            settings.webhook_private_addresses_allowed,
            resolver,
            ssl_context,
        )
        self._calls = CallNotifier(self._caller, os.environ if environ is None else environ, read_secret)
        self._sending: set[asyncio.Task[None]] = set()
        self._by_owner: Counter[str] = Counter()
        self._set_back = SetBack()
        self._upkeep_at = 0.0
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> NotificationSender:
        self._loop = asyncio.create_task(self._run(), name="notifications")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Begin nothing new, and give what is being sent a short time to end."""
        assert self._loop is not None
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=self._settings.stop_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._caller.close()

    async def _run(self) -> None:
        while True:
            for database in self._databases:
                try:
                    await self._take_up(database)
                except Exception as error:
                    self._observer.loop_failed("notifications", error)
                else:
                    self._observer.loop_worked("notifications")
            if self._sending:
                await asyncio.wait(self._sending, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(self._poll_seconds)

    async def _take_up(self, database: Database) -> None:
        """Begin to send what is due, as far as there are free slots. Only that is claimed: other processes may send the
        rest."""
        now = self._clock.now()
        if self._set_back.noticed(now) or time.monotonic() >= self._upkeep_at:
            self._upkeep_at = time.monotonic() + UPKEEP_SECONDS
            for each in self._databases:
                await each.write(partial(store.shorten_waits, after(now, WAIT_SECONDS_MAX), now))
                await each.write(partial(store.forget, after(now, -KEPT_SECONDS), FORGOTTEN_AT_ONCE))
        free = SENDS_MAX - len(self._sending)
        if not free or not await database.read(partial(store.any_due, now)):
            return
        busy = [owner for owner, count in self._by_owner.items() if count >= SENDS_PER_OWNER_MAX]
        claim_until = after(now, self._claim_seconds)
        for one in await database.write(partial(store.claim, now, claim_until, min(free, SENDS_PER_OWNER_MAX), busy)):
            self._by_owner[one.owner] += 1
            task = asyncio.create_task(self._send(database, one), name="notification")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    @property
    def _claim_seconds(self) -> float:
        longest = max(self._settings.webhook_timeout_seconds, self._settings.smtp_timeout_seconds * 3)
        return longest + CLAIM_MARGIN_SECONDS + CLOCK_TOLERANCE_SECONDS

    async def _send(self, database: Database, one: Notification) -> None:
        try:
            done = await self._try(one)
            await database.write(partial(store.done, done))
        except Exception as failure:
            # The claim expires, and a process tries again.
            self._observer.failed("notification", failure)
            return
        finally:
            self._by_owner[one.owner] -= 1
            if not self._by_owner[one.owner]:
                del self._by_owner[one.owner]
        self._tell(done)

    async def _try(self, one: Notification) -> Notification:
        """Send once; returns the row to write."""
        try:
            if one.recipient.kind == EMAIL:
                await self._email.send(one, self._console)
            else:
                await self._calls.send(one, self._console, self._clock.now())
        except NotSent as failure:
            return self._after(one, str(failure), failure.wait_seconds)
        except Refused as failure:
            return self._ended(one, GIVEN_UP, str(failure))
        return self._ended(one, DELIVERED, None)

    def _ended(self, one: Notification, status: str, error: str | None) -> Notification:
        said = None if error is None else error[:ERROR_CHARS_MAX]
        now = self._clock.now()
        return structs.replace(one, status=status, attempts=one.attempts + 1, ended_at=now, last_error=said, next_at=0)

    def _after(self, one: Notification, error: str, wait_seconds: float) -> Notification:
        attempts = one.attempts + 1
        if attempts >= self._settings.webhook_attempts_max:
            return self._ended(one, GIVEN_UP, error)
        wait = max(BACKOFF_SECONDS[min(attempts, len(BACKOFF_SECONDS)) - 1], wait_seconds)
        next_at = after(self._clock.now(), wait * (1 + JITTER * self._clock.jitter()))
        return structs.replace(one, attempts=attempts, next_at=next_at, last_error=error[:ERROR_CHARS_MAX])

    def _tell(self, one: Notification) -> None:
        kind, name, id_ = one.recipient.kind, f"{one.owner} to {one.recipient_name}", one.notification_id
        if one.status == DELIVERED:
            self._observer.notification_sent(kind, "delivered")
        elif one.status == GIVEN_UP:
            self._observer.notification_sent(kind, "given_up")
            log.warning("notification %s of %s given up after %d: %s", id_, name, one.attempts, one.last_error)
        else:
            self._observer.notification_sent(kind, "failed")
            log.info("notification %s of %s failed, try %d: %s", id_, name, one.attempts, one.last_error)
