"""What a bus on NATS is told: where the servers are, who it is to them, and how its streams are kept."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

SCHEMES = ("nats", "tls")


class NatsOptions(Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...]
    """Addresses such as `nats://host:4222`; of a cluster, as many as are known."""
    prefix: str = "lucius"
    """First word of all subjects and streams: several installations may share a server."""
    replicas: int = 1
    """How many servers of a cluster keep each stream."""
    token: str = ""
    user: str = ""
    password: str = ""
    credentials_file: str = ""
    nkey_seed_file: str = ""
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_server_name: str = ""
    monitor_urls: tuple[str, ...] = ()
    """Monitoring addresses such as `http://host:8222`, which tell whether a server syncs every write to disk."""

    @property
    def location(self) -> str:
        """The servers, without passwords."""
        return ", ".join(without_secrets(server) for server in self.servers)

    def files(self) -> list[tuple[str, str]]:
        """The files that are to be read, each with its setting."""
        names = ("credentials_file", "nkey_seed_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
        return [(f"LUCIUS_NATS_{name.upper()}", path) for name in names if (path := getattr(self, name))]


def read_servers(address: str) -> tuple[str, ...]:
    """The servers in an address such as `nats://one:4222,two:4222`. Raises `ValueError` with the reason."""
    scheme, _, rest = address.partition("://")
    if scheme not in SCHEMES:
        raise ValueError("must start with nats:// or tls://")
    servers = []
    for part in (each.strip() for each in rest.split(",")):
        given, separator, host = part.partition("://")
        server = part if separator and given in SCHEMES else f"{scheme}://{part}"
        if not (host if separator else part) or not urlsplit(server).hostname:
            raise ValueError("must name a host, or several with commas between them")
        try:
            _ = urlsplit(server).port
        except ValueError:
            raise ValueError(f"{without_secrets(server)} has no valid port") from None
        servers.append(server)
    return tuple(servers)


def without_secrets(server: str) -> str:
    scheme, _, rest = server.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
