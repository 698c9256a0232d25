"""Conformance suite for engines, on any ledger and bus.

Subclass `EngineSuite` in a test module and provide one fixture: `harness`, an open `EngineHarness` on an empty ledger
and bus. Set the harness's flag for an engine that answers callbacks later, and the suite's flag for a bus without
`still_queued`.
"""

from __future__ import annotations

from lucius.testing.engine_bulk import EngineBulk
from lucius.testing.engine_failures import EngineFailures
from lucius.testing.engine_operations import EngineOperations
from lucius.testing.engine_past_directives import EnginePastDirectives
from lucius.testing.engine_recovery import EngineRecovery
from lucius.testing.engine_running import EngineRunning

__all__ = ["EngineSuite"]


class EngineSuite(EngineRunning, EngineFailures, EngineOperations, EngineRecovery, EnginePastDirectives, EngineBulk):
    """Everything that the engine port guarantees, with the invariants checked over the ledger at the end of each
    test."""
