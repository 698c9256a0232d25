"""The rate gate: request rates of tenants, shared by all processes that accept commands."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Grant(Struct, frozen=True):
    count: int
    """How many of the requests may pass, the first ones."""
    retry_after_seconds: float = 0.0
    """When the next one may, if not all did."""


class RateGateUnavailable(Exception):
    """The gate did not answer, or not in time; the text says why, without secrets."""


class RateGate(Protocol):
    """An async context manager."""

    location: str
    """For people, without secrets."""

    async def take(self, tenant_id: str, per_second: float, count: int) -> Grant:
        """Use up as many requests of a tenant as its rate allows now, and at most `count`.

        A bucket holds one second's worth, and at least one request. Whatever processes ask at the same moment, they are
        granted no more together. Within a deadline; raises `RateGateUnavailable`.
        """

    async def health(self) -> str:
        """Raises `RateGateUnavailable`."""
