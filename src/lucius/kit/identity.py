"""What an instance tells the server about itself with every call."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable

from lucius import __version__

INSTANCE_CHARS_MAX = 64


class Identity:
    def __init__(self, version: str = "") -> None:
        """`version` is that of the service or worker; without one, that of the kit is told."""
        host = "".join(letter for letter in socket.gethostname() if letter.isascii() and letter.isprintable())
        self.instance = f"{host[:INSTANCE_CHARS_MAX] or 'host'}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        """Distinguishes this instance from all others; people recognize its machine and process."""
        self.version = version or f"lucius {__version__}"
        self.in_work: Callable[[], int] = lambda: 0

    def headers(self) -> dict[str, str]:
        return {
            "Lucius-Instance": self.instance,
            "Lucius-Version": self.version,
            "Lucius-In-Work": str(self.in_work()),
        }
