"""A push: the store becomes what was planned, key by key under ETags, with the sentinel first and last.

App Configuration has no transactions, so a push can end halfway. Then its mark in the sentinel stays, readers keep what
they have, and the next push starts from what is there: it writes only what still differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from lucius.registries.appconfig.keys import SENTINEL, key_of
from lucius.registries.appconfig.reading import LargeDocuments, is_blob, is_large, setting_of, written_setting
from lucius.registries.appconfig.sentinel import SENTINEL_TYPE, Sentinel, SentinelText, digest_of
from lucius.registries.appconfig.store import AppConfigStore, Setting, StoreConflict, StoreFailed
from lucius.registries.appconfig.stored import Stored, values_of
from lucius.registries.comparison import Difference, compare, summary_of

THROTTLED_SECONDS_MAX = 300.0
"""How long one call of a push may wait because the store has no requests left."""
RETRY_AFTER_SECONDS_MIN = 1.0
REASON_CHARS_MAX = 300

T = TypeVar("T")


class PushRefused(Exception):
    """Nothing was written; the text says why."""


class PushHalted(Exception):
    """The push ended halfway; the text says why."""


class PushPlan(Struct, frozen=True):
    sentinel: Sentinel
    stored: dict[str, Setting]
    """By key, what the plan was made from: a key that has changed since stops the push."""
    wanted: dict[str, bytes]
    """Documents by key."""
    differences: list[Difference]

    @property
    def is_empty(self) -> bool:
        """Whether the store is what is wanted, and its sentinel says so."""
        text = self.sentinel.text
        return not self.differences and not text.is_pushing and text.digest == digest_of(values_of(self.stored))

    @property
    def summary(self) -> str:
        return summary_of(self.differences)


def plan_push(stored: Stored, documents: Mapping[str, bytes]) -> PushPlan:
    """The store shall hold these documents, by identity, and no others."""
    wanted = {key_of(identity): content for identity, content in documents.items()}
    return PushPlan(stored.sentinel, stored.settings, wanted, compare(stored.documents, documents))


def push_under_way(plan: PushPlan, now: datetime) -> str | None:
    """Another push that may still be running."""
    text = plan.sentinel.text
    if not text.is_pushing or text.halted or text.is_late(now):
        return None
    return f"a push by {text.pushed_by} has been under way since {text.pushing_since}"


async def push(store: AppConfigStore, large: LargeDocuments | None, plan: PushPlan, by: str) -> SentinelText:
    """What the sentinel says at the end. Raises `PushRefused` or `PushHalted`."""
    push_id = uuid4().hex
    mark = SentinelText(pushing_since=_now(), push_id=push_id, pushed_by=by, summary=plan.summary)
    try:
        for key, content in plan.wanted.items():
            if is_large(content):
                await _patiently(partial(written_setting, key, content, large))
        etag = await _patiently(partial(_write_sentinel, store, mark, plan.sentinel.etag))
    except StoreConflict as error:
        raise PushRefused("somebody else has pushed meanwhile: nothing was written; compare again") from error
    except StoreFailed as error:
        raise PushRefused(f"nothing was pushed: {error}") from error
    try:
        await _write_keys(store, plan)
        values = {key: setting_of(key, content).value for key, content in plan.wanted.items()}
        if values_of(await _patiently(store.read_all)) != values:
            raise StoreConflict("somebody else has changed keys during this push")
        done = SentinelText(
            digest=digest_of(values), push_id=push_id, pushed_at=_now(), pushed_by=by, summary=plan.summary
        )
        await _patiently(partial(_write_sentinel, store, done, etag))
    except StoreFailed as error:
        await _halt(store, mark, etag, str(error))
        raise PushHalted(str(error)) from error
    except asyncio.CancelledError:
        await _halt(store, mark, etag, "it was interrupted")
        raise
    return done


async def _write_keys(store: AppConfigStore, plan: PushPlan) -> None:
    """Nothing is removed before everything else is there."""
    for key, content in plan.wanted.items():
        wanted, found = setting_of(key, content), plan.stored.get(key)
        if found is None or found.value != wanted.value or is_blob(found) != is_blob(wanted):
            setting = replace(wanted, etag="" if found is None else found.etag)
            await _patiently(partial(store.write, setting))
    for key, found in plan.stored.items():
        if key not in plan.wanted:
            await _patiently(partial(store.delete, found))


async def _halt(store: AppConfigStore, mark: SentinelText, etag: str, reason: str) -> None:
    """Say in the sentinel that nobody is pushing any more. A mark that cannot be changed is late after a while."""
    try:
        await _write_sentinel(store, replace(mark, halted=reason[:REASON_CHARS_MAX]), etag)
    except StoreFailed:
        return


async def _write_sentinel(store: AppConfigStore, text: SentinelText, etag: str) -> str:
    return await store.write(Setting(SENTINEL, text.encoded(), etag, SENTINEL_TYPE))


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """The call, again when the store says that it has no requests left."""
    waited = 0.0
    while True:
        try:
            return await call()
        except StoreFailed as error:
            if error.retry_after_seconds is None:
                raise
            seconds = max(RETRY_AFTER_SECONDS_MIN, error.retry_after_seconds)
            waited += seconds
            if waited > THROTTLED_SECONDS_MAX:
                raise
            await _pause(seconds)


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
