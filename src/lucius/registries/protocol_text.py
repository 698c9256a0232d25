"""A protocol as YAML in one fixed layout, so that two of them can be compared line by line."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from lucius.domain.protocol import Protocol, StepDefinition
from lucius.registries.comparison import text_diff


def protocol_text(protocol: Protocol) -> str:
    """Everything that the protocol says, defaults left out."""
    document: dict[str, Any] = {"id": protocol.id, "version": protocol.version}
    if protocol.description:
        document["description"] = protocol.description
    document["request_types"] = list(protocol.request_types)
    if protocol.job_deadline_seconds is not None:
        document["job_deadline_seconds"] = protocol.job_deadline_seconds
    document["steps"] = [_step(step) for step in protocol.steps]
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _step(step: StepDefinition) -> dict[str, Any]:
    payload: dict[str, Any] = {"pointer": step.payload_pointer, "schema": step.payload_schema}
    if step.searchable:
        payload["searchable"] = list(step.searchable)
    document: dict[str, Any] = {"id": step.id, "type": step.type, "service": step.service, "payload": payload}
    policy = {name: value for name, value in msgspec.to_builtins(step.policy).items() if value is not None}
    return document | {"policy": policy} if policy else document


def protocol_diff(before: Protocol | None, after: Protocol) -> list[str]:
    """As a unified diff; empty if both mean the same."""
    old = b"" if before is None else protocol_text(before).encode()
    name = "none" if before is None else f"{before.id} version {before.version}"
    return text_diff(old, protocol_text(after).encode(), name, f"{after.id} version {after.version}")
