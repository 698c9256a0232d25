"""Readiness: named checks of what a process depends on, contributed by the modules that know each dependency."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct


class NotReady(Exception):
    """A dependency does not work; the text says why, without secrets."""


class Check(Struct, frozen=True, kw_only=True):
    name: str
    look: Callable[[], Awaitable[str]]
    """A short detail on a dependency that works, without secrets. Raises if it does not work. It may hang: the caller
    sets a deadline."""
    is_vital: bool = True
    """Whether the process cannot work without it."""
