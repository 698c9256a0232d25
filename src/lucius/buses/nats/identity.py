"""How this client presents itself to a server, and how it puts a server's refusal into words."""

from __future__ import annotations

import ssl
from typing import Any

from lucius.buses.nats.options import NatsOptions

CONNECT_SECONDS = 3.0
PING_SECONDS = 10


def arguments(options: NatsOptions) -> dict[str, Any]:
    """What the client library is told, besides the server."""
    given: dict[str, Any] = {
        "token": options.token,
        "user": options.user,
        "password": options.password,
        "user_credentials": options.credentials_file,
        "nkeys_seed": options.nkey_seed_file,
        "tls_hostname": options.tls_server_name,
    }
    context = _tls(options)
    return {
        **{name: value for name, value in given.items() if value},
        **({} if context is None else {"tls": context}),
        "name": "lucius",
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": CONNECT_SECONDS,
        "ping_interval": PING_SECONDS,
    }


def _tls(options: NatsOptions) -> ssl.SSLContext | None:
    is_wanted = any(server.startswith("tls://") for server in options.servers)
    if not (is_wanted or options.tls_ca_file or options.tls_cert_file):
        return None
    context = ssl.create_default_context(cafile=options.tls_ca_file or None)
    if options.tls_cert_file:
        context.load_cert_chain(options.tls_cert_file, options.tls_key_file or None)
    return context


def is_refusal(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLError) or "authorization" in str(error).lower()


def words_of(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if "authorization" in text.lower() or "permissions" in text.lower():
        return f"{text} (check LUCIUS_NATS_CREDENTIALS_FILE, _TOKEN, _USER and _PASSWORD, or _NKEY_SEED_FILE)"
    return text
