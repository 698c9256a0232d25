"""Which inputs are read from the web, and how much of them; `https_fetch` reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True)
class HttpsInputs:
    seconds_max: float = 300.0
    """For one input, with its redirects."""
    hosts: tuple[str, ...] = ()
    """The only hosts that are read from; `*.example.org` are all below it. Empty means every public host."""
    private_allowed: bool = False
    """Whether hosts in private networks are read from. Never those with a cloud's metadata."""

    def open(self, ref: object, what: str, bytes_max: int, check: Callable[[], None] = lambda: None) -> BinaryIO:
        """A temporary file with the content, which goes when it is closed. `check` raises if the work must stop."""
        from lucius.platform.https_fetch import fetched

        return fetched(self, ref, what, bytes_max, check)

    def allows(self, host: str) -> bool:
        host = host.lower().rstrip(".")
        return not self.hosts or any(
            host == entry or (entry.startswith("*.") and host.endswith(entry[1:])) for entry in self.hosts
        )
