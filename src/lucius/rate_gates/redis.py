"""The rate gate in Redis, or a server that speaks its protocol, such as Valkey.

A bucket is a hash with its tokens and when they were counted. One script tops it up and takes from it, by the server's
own clock, so processes neither race nor need clocks that agree. A bucket that is full again is forgotten.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from lucius.ports.rate_gate import Grant, RateGateUnavailable

CALL_SECONDS = 0.25
"""How long a command waits for the gate."""
CONNECTIONS_MAX = 32
KEY = "lucius:rate:"

TAKE = """
local rate, asked = tonumber(ARGV[1]), tonumber(ARGV[2])
local capacity = math.max(rate, 1)
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(kept[1]) or capacity, tonumber(kept[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) / 1000 * rate)
local granted = math.min(asked, math.floor(tokens + 1e-9))
tokens = math.max(0, tokens - granted)
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((capacity - tokens) / rate * 1000) + 1000)
local wait = 0
if granted < asked then wait = math.ceil((1 - tokens) / rate * 1000) end
return {granted, wait}
"""


class RedisRateGate:
    def __init__(self, url: str, ca_file: str = "", call_seconds: float = CALL_SECONDS) -> None:
        """`url`: `redis://` or `rediss://[user:password@]host[:port][/database]`. Raises `ValueError`, whose text does
        not repeat it, and `OSError` for a CA file that cannot be read."""
        from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError as ConnectionFailed

        target = _parsed(url)
        self.location: str = target["location"]
        self._seconds = call_seconds
        options: dict[str, Any] = {name: target[name] for name in ("host", "port", "db", "username", "password")}
        if target["tls"]:
            # The class checks the server's name and certificate only if it is told to.
            options |= {"connection_class": SSLConnection, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
            if ca_file:
                ssl.create_default_context(cafile=ca_file)
                options["ssl_ca_certs"] = ca_file
        pool = BlockingConnectionPool(
            max_connections=CONNECTIONS_MAX,
            timeout=call_seconds,
            socket_timeout=call_seconds,
            socket_connect_timeout=call_seconds,
            # A pooled connection may be from before a restart of the server. What timed out is not tried again: it
            # may have been counted.
            retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionFailed,)),
            **options,
        )
        self._redis = Redis(connection_pool=pool)
        self._take = self._redis.register_script(TAKE)

    async def __aenter__(self) -> RedisRateGate:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def take(self, tenant_id: str, per_second: float, count: int) -> Grant:
        granted, wait = await self._call(self._take(keys=[KEY + tenant_id], args=[repr(per_second), count]))
        return Grant(int(granted), int(wait) / 1000)

    async def health(self) -> str:
        await self._call(self._redis.ping())
        return self.location

    async def _call(self, call: Any) -> Any:
        from redis.exceptions import AuthenticationError, AuthorizationError, RedisError
        from redis.exceptions import ConnectionError as ConnectionFailed

        try:
            async with asyncio.timeout(self._seconds):
                return await call
        except TimeoutError:
            raise RateGateUnavailable(f"{self.location}: no answer within {self._seconds:g} s") from None
        except (AuthenticationError, AuthorizationError):
            raise RateGateUnavailable(f"{self.location}: the password is refused") from None
        except (ConnectionFailed, OSError) as error:
            raise RateGateUnavailable(f"{self.location}: {_reason(error)}") from None
        except RedisError as error:
            raise RateGateUnavailable(f"{self.location}: {type(error).__name__}") from None


def _reason(error: Exception) -> str:
    if "CERTIFICATE" in str(error).upper():
        return "its certificate is not valid"
    return "refused or unreachable"


def _parsed(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except ValueError:
        raise ValueError("it is not an address") from None
    database = parts.path.removeprefix("/")
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ValueError("it must be redis://host:port or rediss://host:port")
    if parts.query or parts.fragment or not (database.isdecimal() or not database):
        raise ValueError("after the host there may be only a port and the number of a database")
    return {
        "host": parts.hostname,
        "port": port,
        "db": int(database or 0),
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "tls": parts.scheme == "rediss",
        "location": f"{parts.scheme}://{parts.hostname}:{port}/{database or 0}",
    }
