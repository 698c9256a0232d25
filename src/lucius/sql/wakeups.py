"""How processes that share a database tell each other where to look.

What changes is told by name alone, after its commit; whoever waits for that name looks for itself. A name that gets
lost costs no more than the time until the next look, so every waiter goes on looking: often where nobody can be told,
and every `FALLBACK_SECONDS` where it is proven that names arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

FALLBACK_SECONDS = 1.0
"""How often waiters look by themselves while names arrive."""


class Wakeups:
    """For a database that cannot tell: nothing is told, and waiters look as often as they otherwise would."""

    is_used = False
    """Whether somebody waits to be woken, and others should be able to."""
    is_working = False
    """Whether names that are told are proven to arrive."""
    problem: str | None = None
    """Why they do not, once they should."""

    def tell(self, names: Iterable[str]) -> None:
        """Tell the other processes that something of these names has changed; call it after the commit. The first
        letter of a name is its kind. Names have no spaces."""

    def listen(self, kind: str, wake: Callable[[str], object], wake_all: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` with the rest of each name of this kind that another process tells, and `wake_all` when names may
        have been missed. Returns what ends this."""
        return lambda: None

    def look_seconds(self, polling_seconds: float) -> float:
        """How long to wait until the next look, if it would be `polling_seconds` without wakeups."""
        return max(polling_seconds, FALLBACK_SECONDS) if self.is_working else polling_seconds


def wakeups_of(database: object) -> Wakeups:
    found = getattr(database, "wakeups", None)
    return found if isinstance(found, Wakeups) else Wakeups()
