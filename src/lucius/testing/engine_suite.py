"""What every engine must do, over whatever ledger and bus.

Subclass `EngineSuite` in a test module and supply one fixture: `stand`, an open `EngineStand` over an empty ledger and
bus. An engine that only receives callbacks says so on the stand; a bus that cannot say what is queued, on the suite.
"""

from __future__ import annotations

from lucius.testing.engine_failures import EngineFailures
from lucius.testing.engine_operations import EngineOperations
from lucius.testing.engine_recovery import EngineRecovery
from lucius.testing.engine_running import EngineRunning

__all__ = ["EngineSuite"]


class EngineSuite(EngineRunning, EngineFailures, EngineOperations, EngineRecovery):
    """Everything the engine port promises, with the invariants checked over the ledger at the end of each test."""
