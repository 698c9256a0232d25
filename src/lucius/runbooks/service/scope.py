"""Which runbooks a caller sees, with everything that belongs to them: batches, members, events, rehearsals.

What a caller does not see does not exist for it: errors are those of unknown names and numbers.
"""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.errors import CallerError
from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.ports.database import Script
from lucius.runbooks.store import runbooks


class Scope(Struct, frozen=True):
    tenants: frozenset[str] | None = None
    """In normal form; None means all runbooks, and only then those of the operator."""

    def sees(self, runbook: str) -> bool:
        return self.tenants is None or tenant_of_runbook(runbook) in self.tenants

    def check_runbook(self, name: str) -> None:
        if not self.sees(name):
            raise missing(name)

    def check_batch(self, batch_id: int) -> Script[None]:
        row = yield from runbooks.of_batch(batch_id)
        if row is None or not self.sees(row.name):
            raise missing_batch(batch_id)

    def listed(self) -> list[str] | None:
        """The tenants that lists are filtered by."""
        return None if self.tenants is None else sorted(self.tenants)


EVERYTHING = Scope()


def missing(name: str) -> CallerError:
    return CallerError.of("NOT_FOUND", f"there is no runbook {name}")


def missing_batch(batch_id: int) -> CallerError:
    return CallerError.of("NOT_FOUND", f"there is no batch {batch_id}")
