"""Protocols: the ordered steps of a request type. Data, not code."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Policy(Struct, frozen=True, kw_only=True):
    """How long a step may take and how often it may be tried. Pinned on the job when it is accepted."""

    max_attempts: int = 3
    ack_timeout_seconds: float = 30.0
    queue_timeout_seconds: float = 86_400.0
    lease_seconds: float = 900.0
    max_step_seconds: float = 21_600.0
    dispatch_backoff_seconds: tuple[float, ...] = (30.0, 120.0, 600.0)
    ack_backoff_seconds: tuple[float, ...] = (60.0, 300.0, 900.0)
    execution_backoff_seconds: tuple[float, ...] = (30.0, 120.0, 600.0)


class PolicyOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a policy that a protocol step, a tenant or the global settings replace; None replaces nothing."""

    max_attempts: int | None = None
    ack_timeout_seconds: float | None = None
    queue_timeout_seconds: float | None = None
    lease_seconds: float | None = None
    max_step_seconds: float | None = None
    dispatch_backoff_seconds: tuple[float, ...] | None = None
    ack_backoff_seconds: tuple[float, ...] | None = None
    execution_backoff_seconds: tuple[float, ...] | None = None


def resolve_policy(*overrides: PolicyOverride | None) -> Policy:
    """Combine overrides, the most specific first, over the built-in defaults."""
    values: dict[str, Any] = {}
    for override in reversed(overrides):
        if override is None:
            continue
        for name in Policy.__struct_fields__:
            value = getattr(override, name)
            if value is not None:
                values[name] = value
    return Policy(**values)


class StepDefinition(Struct, frozen=True, kw_only=True):
    """One step of a protocol: its service, where its parameters are in the payload, and their schema."""

    id: str
    type: str
    service: str
    payload_pointer: str
    payload_schema: dict[str, Any]
    searchable: tuple[str, ...] = ()
    """Fields at the top level of the step's parameters by whose values jobs can be found."""
    policy: PolicyOverride = PolicyOverride()


class Protocol(Struct, frozen=True, kw_only=True):
    """One version of a protocol. A job keeps the version it was accepted under."""

    id: str
    version: int
    request_types: tuple[str, ...]
    steps: tuple[StepDefinition, ...]
    description: str = ""
    job_deadline_seconds: float | None = None
