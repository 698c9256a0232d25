"""The registry in App Configuration: polls the sentinel, reads all keys when it has changed.

What was read takes effect as a whole, or not at all: a bad value, half a push or an outage leave the previous state in
force, and are told by `problems`. The last good state is also in a file, with which a process starts during an outage.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from lucius.ports.registry import Problem, RegistrySnapshot
from lucius.registries.appconfig.cache import Cached, RegistryCache
from lucius.registries.appconfig.keys import KEY_LINE, PREFIX, SENTINEL
from lucius.registries.appconfig.reading import LargeDocuments, read_documents
from lucius.registries.appconfig.sentinel import Sentinel, digest_of
from lucius.registries.appconfig.store import AppConfigStore, StoreFailed
from lucius.registries.contents import Contents, Document, Kind, Rules, read_contents
from lucius.registries.problems import RegistryError
from lucius.registries.versions import KnownVersions

START_SECONDS = 15.0
"""How long a start without a cache waits for the store, or for a push to end."""
START_WITH_CACHE_SECONDS = 5.0
RETRY_SECONDS = 0.5
RETRY_AFTER_SECONDS_MAX = 3_600.0
UNMATCHED_READS_MAX = 3
"""How often keys that do not match the sentinel are read before it changes again: reading them all takes a request for
each hundred."""
JITTER = 0.1
"""Processes that were started together do not poll together for ever."""

log = logging.getLogger("lucius.registry")


class AppConfigRegistry:
    """`open` reads the store, or else the cache, before anything else."""

    def __init__(
        self, store: AppConfigStore, cache: RegistryCache, rules: Rules, large: LargeDocuments | None = None
    ) -> None:
        rules.overrides.check()
        self._store = store
        self._cache = cache
        self._rules = rules
        self._large = large
        self._snapshot: RegistrySnapshot | None = None
        self._versions = KnownVersions()
        self._known_etag = ""
        self._unmatched = ("", 0)
        self._problems: tuple[Problem, ...] = ()
        self._content_problems: tuple[Problem, ...] = ()
        self._from_cache: tuple[Problem, ...] = ()
        self._agreed_at = time.monotonic()

    def snapshot(self) -> RegistrySnapshot:
        assert self._snapshot is not None, "open comes first"
        return self._snapshot

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._problems

    @property
    def stale_seconds(self) -> float:
        return time.monotonic() - self._agreed_at

    async def open(self, seconds_max: float | None = None) -> None:
        """Raises `RegistryError` if neither store nor cache can be used. `seconds_max`: how long to wait for the
        store, if not as long as usual."""
        cached = await asyncio.to_thread(self._cache.load)
        seconds = START_SECONDS if cached is None else START_WITH_CACHE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds if seconds_max is None else seconds_max):
                await self._read_until_decided()
        if self._snapshot is None and cached is not None:
            self._take_cached(cached)
        if self._snapshot is None:
            raise RegistryError(self._problems or (self._about_source("no answer when LUCIUS started"),))

    async def _read_until_decided(self) -> None:
        """Until the store has a state that is good or bad; what is merely away or being pushed is awaited."""
        while True:
            wait_seconds = RETRY_SECONDS
            try:
                await self.refresh()
            except StoreFailed as error:
                wait_seconds = max(wait_seconds, error.retry_after_seconds or 0.0)
            if self._snapshot is not None or self._content_problems:
                return
            await asyncio.sleep(wait_seconds)

    def _take_cached(self, cached: Cached) -> None:
        contents = read_contents(cached.documents, self._rules, f"{PREFIX}{Kind.PROTOCOL}:*", mark=KEY_LINE)
        if contents.problems:
            log.warning("the registry's cache %s is not used: %s", self._cache.path, contents.problems[0])
            return
        self._snapshot = contents.snapshot
        self._versions.add(contents)
        read_at = datetime.fromisoformat(cached.read_at)
        self._agreed_at -= max(0.0, (datetime.now(UTC) - read_at).total_seconds())
        known = self._problems or (self._about_source("no answer when LUCIUS started"),)
        self._from_cache = (self._about_source(f"started with the cache of {cached.read_at}"),)
        self._say((*known, *self._from_cache))

    async def watch(self, interval_seconds: float) -> None:
        wait_seconds = interval_seconds
        while True:
            await self._pause(wait_seconds)
            wait_seconds = interval_seconds
            try:
                await self.refresh()
            except StoreFailed as error:
                wait_seconds = max(wait_seconds, min(error.retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX))
            except Exception:
                log.exception("the registry in App Configuration could not be read")

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * random.uniform(1 - JITTER, 1 + JITTER))

    async def refresh(self) -> bool:
        """Poll once, and return whether the registry changed. Raises `StoreFailed` after telling it in `problems`."""
        try:
            return await self._refresh()
        except StoreFailed as error:
            self._say((*self._content_problems, Problem("App Configuration", None, str(error)), *self._from_cache))
            raise

    async def _refresh(self) -> bool:
        sentinel = await self._store.sentinel(self._known_etag)
        if sentinel is None:
            self._settle(self._content_problems)
            return False
        if sentinel.text.is_pushing:
            self._say((*self._content_problems, *self._late_push(sentinel)))
            return False
        if not sentinel.etag and self._snapshot is not None:
            self._say(
                (
                    Problem(
                        SENTINEL,
                        None,
                        "there is no sentinel, so changes are not seen; `lucius registry push` writes it",
                    ),
                )
            )
            return False
        etag, reads = self._unmatched
        if sentinel.etag == etag and reads >= UNMATCHED_READS_MAX:
            return False
        settings = await self._store.read_all()
        values = {key: setting.value for key, setting in settings.items()}
        if sentinel.text.digest not in ("", digest_of(values)):
            self._note_unmatched(sentinel, reads + 1 if sentinel.etag == etag else 1)
            return False
        documents, problems = await read_documents(settings, self._large)
        contents = read_contents(documents, self._rules, f"{PREFIX}{Kind.PROTOCOL}:*", problems, KEY_LINE)
        self._known_etag = sentinel.etag
        return await self._take(contents, documents)

    async def _take(self, contents: Contents, documents: Iterable[Document]) -> bool:
        problems = (*contents.problems, *self._versions.changed_in(contents, KEY_LINE))
        self._settle(problems)
        if problems:
            return False
        self._versions.add(contents)
        await asyncio.to_thread(self._cache.store, documents)
        before, self._snapshot = self._snapshot, contents.snapshot
        if before is not None and before.version == contents.snapshot.version:
            return False
        log.info("registry read: version %s, %d protocols", contents.snapshot.version, len(contents.snapshot.protocols))
        return True

    def _settle(self, problems: tuple[Problem, ...]) -> None:
        """The store has answered, and this is wrong with what it holds."""
        self._content_problems = problems
        self._from_cache = ()
        self._unmatched = ("", 0)
        self._say(problems)
        if not problems:
            self._agreed_at = time.monotonic()

    def _note_unmatched(self, sentinel: Sentinel, reads: int) -> None:
        self._unmatched = (sentinel.etag, reads)
        detail = (
            "the keys are not those that were pushed: a push ended halfway, or a key was changed by hand without the"
            " sentinel; `lucius registry diff` shows what differs, and `lucius registry push` mends it"
        )
        self._say((*self._content_problems, Problem(SENTINEL, None, detail)))

    def _late_push(self, sentinel: Sentinel) -> tuple[Problem, ...]:
        """A push is nothing unusual, unless it does not end."""
        since, by, halted = sentinel.text.pushing_since, sentinel.text.pushed_by, sentinel.text.halted
        if not halted and not sentinel.text.is_late(datetime.now(UTC)) and self._snapshot is not None:
            return ()
        if halted:
            detail = f"a push by {by} ended halfway ({halted}): run `lucius registry push` again"
        else:
            detail = f"a push by {by} has been under way since {since}; if it ended halfway, push again"
        return (Problem(SENTINEL, None, detail),)

    def _about_source(self, detail: str) -> Problem:
        return Problem(f"App Configuration {self._store.options.endpoint}", None, detail)

    def _say(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            if problem not in self._problems:
                log.error("registry not read: %s", problem)
        if self._problems and not problems:
            log.info("the registry's problems are over")
        self._problems = problems
