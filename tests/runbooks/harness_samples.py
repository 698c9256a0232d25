"""Runbooks for the stand, and what its worker says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WORKER = "pool"
SUCCESS: dict[str, Any] = {"status": "Success", "result": {}}
STILL_POLLING: dict[str, Any] = {"status": "Success", "result": {"complete": False}}
FAILURE: dict[str, Any] = {"status": "Failure", "error": {"message": "boom", "type": "Boom", "isThrottled": False}}
THROTTLED: dict[str, Any] = {"status": "Failure", "error": {"message": "slow down", "isThrottled": True}}


def success(**result: Any) -> dict[str, Any]:
    return {"status": "Success", "result": result}


def failure(message: str) -> dict[str, Any]:
    return {"status": "Failure", "error": {"message": message}}


def csv(members: Iterable[str]) -> bytes:
    return ("Upn\n" + "".join(f"{member}\n" for member in members)).encode()


def runbook(
    phases: Mapping[str, Sequence[Any]],
    *,
    offsets: Mapping[str, str] | None = None,
    approvals: Mapping[str, Any] | None = None,
    name: str = "moves",
    **parts: Any,
) -> str:
    """A runbook as YAML (which JSON is): steps are names, or names with more of a step after them as a mapping."""
    listed = [
        {"name": phase, "offset": (offsets or {}).get(phase, "T-0"), "steps": [as_step(one) for one in steps]}
        | ({"approval": approvals[phase]} if phase in (approvals or {}) else {})
        for phase, steps in phases.items()
    ]
    source = parts.pop("data_source", {"type": "manual", "primary_key": "Upn"})
    for listing in ("init", "on_member_removed"):
        if listing in parts:
            member = {} if listing == "init" else {"Upn": "{{Upn}}"}
            parts[listing] = [as_step(one, member) for one in parts[listing]]
    if "rollbacks" in parts:
        parts["rollbacks"] = {key: [as_step(one) for one in steps] for key, steps in parts["rollbacks"].items()}
    return json.dumps({"name": name, "data_source": source, "phases": listed, **parts})


def as_step(step: Any, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`check` is a step of that name whose function has the name as well."""
    given = {"name": step} if isinstance(step, str) else dict(step)
    member = {"Upn": "{{Upn}}"} if params is None else params
    return {"worker_id": WORKER, "function": given["name"], "params": member, **given}
