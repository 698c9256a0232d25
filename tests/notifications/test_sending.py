"""The sender: what a receiver gets, how often, and what is written down when it does not take it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from tests.notifications.conftest import Receiver
from tests.notifications.samples import NOW, held

from lucius.azure.key_vault import SecretUnreadable
from lucius.domain.notifications import Notice, Recipient
from lucius.domain.time import after
from lucius.notifications import recording, store
from lucius.notifications.store import DELIVERED, GIVEN_UP, PENDING, Notification, NotificationFilter
from lucius.notifiers import NotificationSender
from lucius.ports.database import Database
from lucius.ports.observer import Observer
from lucius.settings import Settings
from lucius.testing.samples import ManualClock
from lucius.webhooks.signing import read_secrets, sign

SETTINGS = Settings(webhook_private_addresses_allowed=True, webhook_timeout_seconds=2.0, smtp_tls="off")


class Watcher(Observer):
    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []
        self.failures: list[BaseException] = []

    def notification_sent(self, kind: str, outcome: str) -> None:
        self.outcomes.append((kind, outcome))

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append(error)


class Rig:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock(NOW)
        self.watcher = Watcher()
        self.environ: dict[str, str] = {}

    @asynccontextmanager
    async def sender(self, settings: Settings = SETTINGS) -> AsyncIterator[None]:
        async def read_secret(place: str, text: str) -> str:
            if text.startswith("keyvault://"):
                raise SecretUnreadable("the vault does not answer")
            return text

        sender = NotificationSender(
            [self.database], self.clock, settings, self.watcher, read_secret, environ=self.environ, poll_seconds=0.01
        )
        async with sender:
            yield
        assert not self.watcher.failures

    async def record(self, *notices: Notice) -> None:
        await self.database.write(partial(recording.record, list(notices), self.clock.now()))

    async def outcomes(self, count: int) -> Sequence[tuple[str, str]]:
        async with asyncio.timeout(10):
            while len(self.watcher.outcomes) < count:
                await asyncio.sleep(0.005)
        return self.watcher.outcomes

    async def row(self) -> Notification:
        (one,) = await self.database.read(partial(store.listed, NotificationFilter(), 10, None))
        return one


@pytest.fixture
def rig(volatile: Database) -> Rig:
    return Rig(volatile)


def to(receiver: Receiver, **more: Any) -> Recipient:
    given: dict[str, Any] = {"name": "ops", "kind": "webhook", "url": receiver.url}
    return Recipient(**given | more)


async def test_a_webhook_is_signed_and_says_what_happened(rig: Rig, receiver: Receiver) -> None:
    rig.environ = {"LUCIUS_NOTIFY_SECRET": "one two"}
    await rig.record(held(to(receiver, secret_env="LUCIUS_NOTIFY_SECRET"), phase="cutover"))
    async with rig.sender():
        assert await rig.outcomes(1) == [("webhook", "delivered")]
    ((headers, body),) = receiver.calls
    row = await rig.row()
    assert (row.status, row.attempts, row.ended_at) == (DELIVERED, 1, NOW)
    assert headers["webhook-id"] == f"msg_{row.notification_id}"
    secrets = read_secrets("one two")
    assert headers["webhook-signature"] == sign(secrets, headers["webhook-id"], NOW // 1000, body)
    said = json.loads(body)
    assert said["type"] == "notification.batch_held"
    assert said["data"] | {"batch_id": 7, "runbook": "move", "phase": "cutover"} == said["data"]
    assert said["data"]["link"].endswith("/console/batches/7")


async def test_a_failed_try_is_repeated_under_the_same_id_with_the_same_body(rig: Rig, receiver: Receiver) -> None:
    receiver.statuses = [500, 200]
    await rig.record(held(to(receiver)))
    async with rig.sender():
        await rig.outcomes(1)
        row = await rig.row()
        assert (row.status, row.last_error) == (PENDING, "the receiver answered 500")
        rig.clock.advance(10)
        assert await rig.outcomes(2) == [("webhook", "failed"), ("webhook", "delivered")]
    (first, body), (second, again) = receiver.calls
    assert (first["webhook-id"], body) == (second["webhook-id"], again)
    assert (await rig.row()).last_error is None


async def test_it_is_given_up_after_the_last_try_or_at_once_where_that_is_wanted(rig: Rig, receiver: Receiver) -> None:
    receiver.statuses = [500, 410]
    await rig.record(held(to(receiver)))
    async with rig.sender(replace(SETTINGS, webhook_attempts_max=1)):
        assert await rig.outcomes(1) == [("webhook", "given_up")]
    assert (await rig.row()).status == GIVEN_UP
    await rig.record(held(to(receiver), batch_id=8))
    async with rig.sender():
        assert (await rig.outcomes(2))[1] == ("webhook", "given_up")


async def test_private_addresses_are_refused_unless_allowed(rig: Rig, receiver: Receiver) -> None:
    await rig.record(held(to(receiver)))
    async with rig.sender(replace(SETTINGS, webhook_private_addresses_allowed=False)):
        assert await rig.outcomes(1) == [("webhook", "given_up")]
    assert receiver.calls == []


async def test_a_missing_variable_or_secret_is_named_and_tried_again(rig: Rig, receiver: Receiver) -> None:
    await rig.record(held(to(receiver, url=None, url_env="LUCIUS_NOTIFY_URL", secret="keyvault://v/s")))
    async with rig.sender():
        await rig.outcomes(1)
        assert "LUCIUS_NOTIFY_URL is not set" in str((await rig.row()).last_error)
        rig.environ["LUCIUS_NOTIFY_URL"] = receiver.url
        rig.clock.advance(10)
        await rig.outcomes(2)
    assert "the vault does not answer" in str((await rig.row()).last_error)
    assert receiver.calls == []


async def test_a_json_body_is_made_from_its_template(rig: Rig, receiver: Receiver) -> None:
    template = {"type": "message", "attachments": [{"text": "{{title}}: {{reason}}", "count": "{{count}}"}]}
    await rig.record(held(to(receiver, kind="json", template=template), reason='"quoted" {{title}}'))
    await rig.record(held(to(receiver, kind="json", name="slack"), batch_id=8))
    async with rig.sender():
        await rig.outcomes(2)
    bodies = sorted((json.loads(body) for _, body in receiver.calls), key=len)
    assert set(bodies[0]) == {"text"}
    assert bodies[1] == {
        "type": "message",
        "attachments": [{"text": 'Held: batch 7 of runbook move: "quoted" {{title}}', "count": 1}],
    }


async def test_what_the_interval_holds_back_is_sent_at_its_end_with_its_count(rig: Rig, receiver: Receiver) -> None:
    one = to(receiver, interval_seconds=60)
    await rig.record(held(one))
    async with rig.sender():
        await rig.outcomes(1)
        for _ in range(3):
            rig.clock.advance(5)
            await rig.record(held(one, at=rig.clock.now()))
        rig.clock.advance(60)
        await rig.outcomes(2)
    assert [json.loads(body)["data"]["count"] for _, body in receiver.calls] == [1, 3]


async def test_a_claim_of_a_process_that_died_expires_and_the_same_id_is_sent(rig: Rig, receiver: Receiver) -> None:
    await rig.record(held(to(receiver)))
    (claimed,) = await rig.database.write(partial(store.claim, NOW, after(NOW, 60), 10, []))
    async with rig.sender():
        rig.clock.advance(61)
        await rig.outcomes(1)
    assert receiver.calls[0][0]["webhook-id"] == f"msg_{claimed.notification_id}"
