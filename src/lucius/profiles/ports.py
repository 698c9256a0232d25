"""Ports on this machine for the servers of a profile."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from lucius.settings import SettingsError

HOST = "127.0.0.1"
PORTS = range(20_000, 32_768)
"""Below the range for outgoing connections, where a port may be taken before its server binds it."""
PORT_TRIES_MAX = 100


def free_port() -> int:
    for _ in range(PORT_TRIES_MAX):
        port = random.SystemRandom().choice(PORTS)
        with suppress(OSError):
            _bind(port)
            return port
    raise SettingsError(f"no free port found between {PORTS.start} and {PORTS.stop - 1}: choose one")


def usable_port(wanted: int, option: str) -> int:
    """The port that was asked for with this option, or a free one for 0."""
    if not wanted:
        return free_port()
    try:
        _bind(wanted)
    except OSError as error:
        raise SettingsError(f"cannot listen on {HOST}:{wanted}: {error.strerror}; choose another {option}") from error
    return wanted


def _bind(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
