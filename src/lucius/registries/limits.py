"""The limits that a registry may set. Nothing may wait forever: none, null and infinity are refused."""

from __future__ import annotations

from math import isfinite
from typing import Any

ATTEMPTS_MAX = 100
SECONDS_MAX = 10 * 365 * 86_400
BACKOFFS_MAX = 32

_SECONDS = ("ack_timeout_seconds", "queue_timeout_seconds", "lease_seconds", "max_step_seconds")
_BACKOFFS = ("dispatch_backoff_seconds", "ack_backoff_seconds", "execution_backoff_seconds")


def checked_policy(policy: dict[str, Any] | None, place: str) -> list[tuple[str, str]]:
    """Faults in the numbers of a policy whose types are valid."""
    if policy is None:
        return []
    faults: list[tuple[str, str]] = []
    if "max_attempts" in policy and not _is_within(policy["max_attempts"], 1, ATTEMPTS_MAX):
        faults.append((f"{place}/max_attempts", f"max_attempts must be from 1 to {ATTEMPTS_MAX}"))
    for name in _SECONDS:
        faults += seconds_faults(policy, name, place)
    for name in _BACKOFFS:
        if name not in policy:
            continue
        backoff = policy[name]
        if not backoff or len(backoff) > BACKOFFS_MAX or not all(_is_within(one, 0, SECONDS_MAX) for one in backoff):
            detail = f"{name} must list 1 to {BACKOFFS_MAX} waits, each from 0 to {SECONDS_MAX} seconds"
            faults.append((f"{place}/{name}", detail))
    return faults


def seconds_faults(values: dict[str, Any], name: str, place: str) -> list[tuple[str, str]]:
    if name not in values:
        return []
    seconds = values[name]
    if _is_within(seconds, 0, SECONDS_MAX) and seconds > 0:
        return []
    return [(f"{place}/{name}", f"{name} must be above 0 and at most {SECONDS_MAX}; leave it out for the default")]


def count_faults(values: dict[str, Any], name: str, place: str) -> list[tuple[str, str]]:
    if values.get(name) is None or values[name] >= 0:
        return []
    return [(f"{place}/{name}", f"{name} must be 0 or more")]


def _is_within(value: Any, least: float, most: float) -> bool:
    return value is not None and isfinite(value) and least <= value <= most
