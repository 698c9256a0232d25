"""The rate gate, by its setting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lucius.ports.rate_gate import RateGate
from lucius.settings import Settings, SettingsError


@asynccontextmanager
async def open_rate_gate(settings: Settings) -> AsyncIterator[RateGate | None]:
    """None means that each process holds tenants to their rates by itself. Nothing is asked yet. Raises
    `SettingsError`."""
    if not settings.rate_gate:
        yield None
        return
    try:
        from lucius.rate_gates.redis import RedisRateGate

        gate = RedisRateGate(settings.rate_gate, settings.rate_gate_ca_file)
    except ModuleNotFoundError as error:
        raise SettingsError(
            "LUCIUS_RATE_GATE=redis://… needs the extra `redis`: pip install '.[redis]' in a clone of LUCIUS"
        ) from error
    except ValueError as error:
        raise SettingsError(f"LUCIUS_RATE_GATE: {error}") from error
    except OSError as error:
        raise SettingsError(f"LUCIUS_RATE_GATE_CA_FILE={settings.rate_gate_ca_file!r}: {error}") from error
    async with gate:
        yield gate
