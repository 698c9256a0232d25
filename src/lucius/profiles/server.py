"""A server that a profile starts before LUCIUS's own roles, and what these need to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lucius.profiles.part import PartPlan


@dataclass(frozen=True, kw_only=True)
class Server:
    plan: PartPlan
    settings: Mapping[str, str]
    """`LUCIUS_*` variables of every role."""
    label: str = ""
    """What the greeting calls `address`; a server without one is not shown."""
    address: str = ""
