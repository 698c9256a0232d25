"""Looking at runbooks, batches and members: what there is, how far it has come, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lucius.runbooks.orchestrator.turn import Turns
from lucius.runbooks.sources.limits import SourceLimits


class Queries:
    def __init__(
        self, turns: Turns, limits: SourceLimits, environ: Mapping[str, str], own_files: Sequence[Path]
    ) -> None:
        self._turns = turns
        self._limits = limits
        self._environ = environ
        self._own_files = own_files
