"""Conformance suite for registries.

Subclass `RegistrySuite` in a test module and supply the fixture `source`: a `RegistrySource`, empty at first.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from lucius.domain.protocol import PolicyOverride
from lucius.domain.routing import Mode
from lucius.ports.registry import Registry
from lucius.registries.overrides import Overrides
from lucius.registries.problems import RegistryError

WAIT_SECONDS = 20.0
PROTOCOL = """\
id: SCAN
version: 1
request_types: [SCAN]
steps:
  - id: scan
    type: SCAN
    service: scanner
"""
OTHER = PROTOCOL.replace("SCAN", "FAX").replace("scanner", "modem")


class RegistrySource(ABC):
    """What a registry reads, as people change it. Documents go by identity: `globals`, `protocols:ID:VERSION`,
    `tenants:ID`."""

    @abstractmethod
    async def put(self, identity: str, text: str) -> None: ...

    @abstractmethod
    async def remove(self, identity: str) -> None: ...

    @abstractmethod
    async def publish(self) -> None:
        """Ends a change, where readers wait for that."""

    @abstractmethod
    def open(self, overrides: Overrides | None = None) -> AbstractAsyncContextManager[Registry]: ...

    @abstractmethod
    async def look(self, registry: Registry) -> None:
        """Let the registry look at its source once."""

    @abstractmethod
    def place(self, identity: str) -> str:
        """How problems name a document."""

    async def set(self, **documents: str) -> None:
        """By identity, with `__` for `:`; published."""
        for name, text in documents.items():
            await self.put(name.replace("__", ":"), text)
        await self.publish()


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110 - a registry tells nobody.
            await asyncio.sleep(0.01)


class RegistrySuite:
    async def test_everything_is_in_the_snapshot(self, source: RegistrySource) -> None:
        await source.set(
            protocols__SCAN__1=PROTOCOL,
            protocols__SCAN__2=PROTOCOL.replace("version: 1", "version: 2"),
            protocols__FAX__1=OTHER,
            tenants__acme="{id: Acme, mode: BURST, max_inflight: 7}",
            globals="max_inflight: 50\n",
        )
        async with source.open() as registry:
            snapshot = registry.snapshot()
            assert {name: one.version for name, one in snapshot.protocols.items()} == {"SCAN": 2, "FAX": 1}
            assert snapshot.request_types["FAX"].steps[0].service == "modem"
            assert (snapshot.tenants["acme"].mode, snapshot.tenants["acme"].max_inflight) == (Mode.BURST, 7)
            assert snapshot.settings.max_inflight == 50
            assert registry.problems == ()

    async def test_change_takes_effect_as_a_whole_and_is_a_new_version(self, source: RegistrySource) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL, tenants__a="id: a")
        async with source.open() as registry:
            before = registry.snapshot()
            await source.look(registry)
            assert registry.snapshot() is before
            await source.remove("tenants:a")
            await source.set(protocols__FAX__1=OTHER, tenants__b="id: b")
            await source.look(registry)
            after = registry.snapshot()
            assert (set(after.tenants), set(after.request_types)) == ({"b"}, {"SCAN", "FAX"})
            assert after.version != before.version
            assert set(before.tenants) == {"a"}, "a snapshot never changes"
            await source.remove("tenants:b")
            await source.remove("protocols:FAX:1")
            await source.set(tenants__a="# the same\nid: a")
            await source.look(registry)
            assert registry.snapshot().version == before.version

    async def test_bad_document_leaves_the_last_good_state_in_force_and_is_named(self, source: RegistrySource) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL, tenants__t="id: t")
        async with source.open() as registry:
            good = registry.snapshot()
            await source.set(tenants__t="id: t\nmax_inflight: many", protocols__FAX__1=OTHER)
            for _ in range(2):
                await source.look(registry)
                assert registry.snapshot() is good
                (problem,) = registry.problems
                assert (problem.place, problem.line) == (source.place("tenants:t"), 2)
                assert "expected int" in problem.detail
            await source.set(tenants__t="id: t\nmax_inflight: 3")
            await source.look(registry)
            assert registry.problems == ()
            assert registry.snapshot().tenants["t"].max_inflight == 3
            assert "FAX" in registry.snapshot().protocols

    async def test_protocols_that_collide_are_refused_together(self, source: RegistrySource) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL)
        async with source.open() as registry:
            await source.set(protocols__FAX__1=OTHER.replace("[FAX]", "[FAX, SCAN]"))
            await source.look(registry)
            assert "SCAN is already served by FAX" in str(registry.problems[0])
            assert set(registry.snapshot().protocols) == {"SCAN"}

    async def test_version_that_changed_is_refused_with_its_line_and_the_last_good_one_stays(
        self, source: RegistrySource
    ) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL, protocols__FAX__1=OTHER)
        changed = PROTOCOL.replace("scanner", "copier")
        async with source.open() as registry:
            good = registry.snapshot()
            await source.set(protocols__SCAN__1=changed, tenants__t="id: t")
            for _ in range(2):
                await source.look(registry)
                assert registry.snapshot() is good
                (problem,) = registry.problems
                assert (problem.place, problem.line) == (source.place("protocols:SCAN:1"), 2)
                assert "version 1 of SCAN has changed" in problem.detail
            await source.set(protocols__SCAN__1=f"# Only a comment.\n{PROTOCOL}")
            await source.look(registry)
            assert registry.problems == ()
            assert "t" in registry.snapshot().tenants
            await source.set(protocols__SCAN__2=changed.replace("version: 1", "version: 2"))
            await source.look(registry)
            assert registry.problems == ()
            assert registry.snapshot().protocols["SCAN"].steps[0].service == "copier"

    async def test_version_that_was_removed_does_not_come_back_as_another(self, source: RegistrySource) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL, protocols__FAX__1=OTHER)
        async with source.open() as registry:
            await source.remove("protocols:FAX:1")
            await source.publish()
            await source.look(registry)
            assert "FAX" not in registry.snapshot().protocols
            await source.set(protocols__FAX__1=OTHER.replace("modem", "printer"))
            await source.look(registry)
            assert "version 1 of FAX has changed" in str(registry.problems[0])
            assert "FAX" not in registry.snapshot().protocols
            await source.set(protocols__FAX__1=OTHER)
            await source.look(registry)
            assert registry.snapshot().protocols["FAX"].steps[0].service == "modem"

    async def test_start_with_a_bad_or_an_empty_source_is_refused(self, source: RegistrySource) -> None:
        with pytest.raises(RegistryError, match="no protocol here"):
            async with source.open():
                raise AssertionError("an empty registry was accepted")
        await source.set(protocols__SCAN__1=PROTOCOL.replace("service", "sevice"), tenants__t="{id: t, mode: FAST}")
        with pytest.raises(RegistryError) as caught:
            async with source.open():
                raise AssertionError("a broken registry was accepted")
        places = {(problem.place, problem.line) for problem in caught.value.problems}
        assert places >= {(source.place("protocols:SCAN:1"), 7), (source.place("tenants:t"), 1)}

    async def test_environment_overrides_the_global_settings(self, source: RegistrySource) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL, globals="{max_inflight: 50, policy: {max_attempts: 9}}")
        overrides = Overrides(max_inflight=5, policy=PolicyOverride(lease_seconds=1.5))
        async with source.open(overrides) as registry:
            settings = registry.snapshot().settings
            assert (settings.max_inflight, settings.policy.lease_seconds, settings.policy.max_attempts) == (5, 1.5, 9)
        with pytest.raises(RegistryError, match="LUCIUS_MAX_INFLIGHT"):
            async with source.open(Overrides(max_inflight=-1)):
                raise AssertionError("a limit below zero was accepted")

    async def test_watch_takes_up_changes_until_it_is_cancelled(self, source: RegistrySource) -> None:
        await source.set(protocols__SCAN__1=PROTOCOL)
        async with source.open() as registry:
            watching = asyncio.create_task(registry.watch(0.02))
            try:
                await source.set(tenants__t="{id: t, max_inflight: many}")
                await _until(lambda: registry.problems)
                await source.set(tenants__t="id: t")
                await _until(lambda: "t" in registry.snapshot().tenants)
                await _until(lambda: not registry.problems and registry.stale_seconds < 1)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            assert watching.cancelled()
