"""What `lucius doctor` does."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.doctor import Diagnosis, examine_all
from lucius.roles.running import run
from lucius.settings import Settings


def examine(settings: Settings, seconds: float) -> list[Diagnosis]:
    """Ask every part that the settings name, each within this time."""
    # What adapters log is in the findings.
    return run(examine_all(settings, seconds), replace(settings, log_level="CRITICAL"))
