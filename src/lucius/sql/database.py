"""What the adapters on a database share, beside the port itself (`lucius.ports.database`)."""

from __future__ import annotations

from lucius.domain.errors import CallerError
from lucius.ports.database import Check, Database, DatabaseOwned, DatabaseUnavailable, Fetch, Row, Run, Script, Together

__all__ = [
    "LISTS_MAX", "LIST_SECONDS_MAX", "Check", "Database", "DatabaseOwned", "DatabaseUnavailable", "Fetch", "Row", "Run",
    "RunAgain", "Script", "Together", "query_too_slow",
]  # fmt: skip


class RunAgain(Exception):
    """Raised inside a script: another transaction got in the way. Roll back and run the script anew."""


LISTS_MAX = 2
"""List queries at once, unless settings say otherwise: more take the processor from turns and answer no sooner."""
LIST_SECONDS_MAX = 5.0


def query_too_slow(seconds: float) -> CallerError:
    return CallerError.of(
        "QUERY_TOO_SLOW",
        f"the list took longer than {seconds:g} s and was stopped: narrow it with tenant_id, status, created_from and"
        " created_to, or ask for a smaller limit",
    )
