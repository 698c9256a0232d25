"""Limits on connections, in total and for each peer, and on memory for the bodies being received.

At a limit, the connection that has kept the server waiting longest gives way: an idle one first, then one whose request
is incomplete, then one that does not read its answer. A connection whose request is being processed never does. If none
can give way, a reserve of connections still serves health checks and callbacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from heapq import nsmallest
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from math import inf
from typing import TYPE_CHECKING

from uvicorn.server import ServerState

from lucius.api.intake import Intake
from lucius.auth import Principal
from lucius.domain.errors import InfrastructureError
from lucius.settings import Settings, SettingsError

if TYPE_CHECKING:
    from lucius.api.connection import Connection

log = logging.getLogger("lucius.api")

LOG_INTERVAL_SECONDS = 60.0
"""How often rejections are logged: a flood must not fill the disk."""
GIVE_WAY_COUNT = 16
"""Connections that give way at once, so that a flood does not cause a scan of all connections for each new one."""
BODIES_SHARE = 4
"""One peer may hold a quarter of the memory for bodies."""
IPV6_PEER_BITS = 64
"""A client with one IPv6 address usually has a whole network of this size."""
POSITIVE = (
    "connections_max", "connections_per_peer_max", "header_bytes_max", "headers_max", "bodies_bytes_max",
    "connect_seconds", "header_seconds", "body_seconds", "keep_alive_seconds", "write_seconds",
)  # fmt: skip


class Peer:
    """An address that connections come from."""

    __slots__ = ("address", "body_bytes", "connections", "is_trusted")

    def __init__(self, address: str, is_trusted: bool) -> None:
        self.address = address
        self.is_trusted = is_trusted
        self.connections = 0
        self.body_bytes = 0


class Admission(ServerState):
    """State shared by the connections of one server."""

    def __init__(self, settings: Settings, new_id: Callable[[], str], known: Callable[[str], Principal | None]) -> None:
        """`known` returns the principal of an authorization header if that needs no I/O."""
        super().__init__()
        for name in POSITIVE:
            if getattr(settings, name) <= 0:
                raise SettingsError(f"LUCIUS_{name.upper()} must be more than 0")
        self.settings = settings
        self.connections_max = settings.connections_max
        self.connections_reserved = settings.connections_reserved
        self.new_id = new_id
        self.known = known
        self.intake = Intake()
        self._trusted = trusted_proxies(settings)
        self._peers: dict[str, Peer] = {}
        self._held: set[Connection] = set()
        self._all_left = asyncio.Event()
        self.is_leaving = False
        """The server is about to stop: every answer is the last one on its connection."""
        self._body_bytes = 0
        self.refused: Counter[str] = Counter()
        """Requests that connections rejected, by code, since they were last logged."""
        self._logged_at = -inf

    def limit_connections(self, descriptors: int) -> None:
        """Limit connections to the descriptors that the process may have, with at most a quarter of them as the
        reserve: idle connections must give way before the system refuses to open any."""
        self.connections_reserved = min(self.connections_reserved, descriptors // 4)
        self.connections_max = min(self.connections_max, descriptors - self.connections_reserved)

    # --- Connections -------------------------------------------------------------------------------------------------

    def enter(self, connection: Connection, host: str) -> tuple[Peer, bool]:
        """Register a connection; returns its peer, and whether it is in the reserve."""
        peer = self._peer(host)
        peer.connections += 1
        self._held.add(connection)
        settings = self.settings
        if not peer.is_trusted and peer.connections > settings.connections_per_peer_max:
            return peer, not self._make_room(connection, peer)
        if len(self._held) > self.connections_max:
            return peer, not self._make_room(connection, None)
        return peer, False

    @property
    def is_full(self) -> bool:
        """Whether the reserve is used up as well."""
        return len(self._held) > self.connections_max + self.connections_reserved

    def leave(self, connection: Connection, peer: Peer) -> None:
        if connection not in self._held:
            return
        self._held.remove(connection)
        peer.connections -= 1
        if not peer.connections:
            self._peers.pop(peer.address, None)
        if self.is_leaving and not self._held:
            self._all_left.set()

    async def dismiss(self) -> None:
        """Close each connection after its next answer, and wait until none is left."""
        self.is_leaving = True
        for connection in self._held:
            connection.close_after_answer()
        if self._held:
            await self._all_left.wait()

    def _make_room(self, newcomer: Connection, peer: Peer | None) -> bool:
        """Make connections, of one peer or of all, give way to a new one; returns whether there were any."""
        waiting = [
            connection
            for connection in self._held
            if connection is not newcomer
            and (peer is None or connection.peer is peer)
            and connection.patience is not None
        ]
        for connection in nsmallest(GIVE_WAY_COUNT, waiting, key=lambda connection: connection.patience or (0, 0.0)):
            connection.give_way()
        return bool(waiting)

    def _peer(self, host: str) -> Peer:
        address = _peer_address(host)
        found = self._peers.get(address)
        if found is None:
            found = self._peers[address] = Peer(address, self._trusts(host))
        return found

    def _trusts(self, host: str) -> bool:
        if not self._trusted or not host:
            return False
        address = _unmapped(host)
        return any(address in network for network in self._trusted)

    def check(self, now: float) -> None:
        """Enforce the deadlines of every connection."""
        for connection in list(self._held):
            connection.check(now)
        if self.refused and now - self._logged_at >= LOG_INTERVAL_SECONDS:
            counts = ", ".join(f"{count} {code}" for code, count in sorted(self.refused.items()))
            log.warning("requests rejected before they reached a handler: %s", counts)
            self.refused.clear()
            self._logged_at = now

    # --- Bodies ------------------------------------------------------------------------------------------------------

    def borrow(self, peer: Peer, size: int, held: int) -> None:
        """Reserve memory for a body that has `held` so far. A peer's only body may exceed the peer's share."""
        most = self.settings.bodies_bytes_max
        is_only = peer.is_trusted or peer.body_bytes == held
        if self._body_bytes + size > most or (not is_only and peer.body_bytes + size > most // BODIES_SHARE):
            raise InfrastructureError.unavailable(
                "too many large bodies are being received, in total or from your address; retry later"
            )
        self._body_bytes += size
        peer.body_bytes += size

    def repay(self, peer: Peer, size: int) -> None:
        self._body_bytes -= size
        peer.body_bytes -= size


def trusted_proxies(settings: Settings) -> list[IPv4Network | IPv6Network]:
    found = []
    for text in settings.trusted_proxies:
        try:
            found.append(ip_network(text))
        except ValueError as error:
            raise SettingsError(f"LUCIUS_TRUSTED_PROXIES: {error}; expected addresses or networks") from error
    return found


def _unmapped(host: str) -> object:
    """The address; an IPv4 address that comes over an IPv6 socket is returned as IPv4."""
    address = ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _peer_address(host: str) -> str:
    if ":" not in host:
        return host
    address = _unmapped(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, IPV6_PEER_BITS), strict=False))
    return str(address)
