"""The published schemas of the callbacks, and validation against them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

FAULTS_MAX = 5
TOLERATED = ("failure_class", "retry_after", "code", "message")
"""Fields that the schema requires but the real server does not."""


class KitUnusable(Exception):
    """The kit cannot run as requested; the message says what to do."""


class Shapes:
    def __init__(self) -> None:
        try:
            import jsonschema_rs
        except ImportError as error:
            raise KitUnusable(
                "the contract kit needs jsonschema-rs: pip install '.[contract]' in a clone of LUCIUS"
            ) from error
        folder = resources.files("lucius.domain.schemas")
        self._validators = {
            kind: jsonschema_rs.validator_for(json.loads(folder.joinpath(f"{kind.lower()}.json").read_text("utf-8")))
            for kind in ("ACK", "HEARTBEAT", "RESULT", "DIRECTIVE")
        }

    def faults(self, kind: str, body: dict[str, Any]) -> list[str]:
        """The body's faults, by place; empty if it matches its schema."""
        found = []
        for error in self._validators[kind].iter_errors(body):
            place = "/" + "/".join(str(part) for part in error.instance_path)
            found.append(f"{place if place != '/' else 'the body'}: {error.message[:300]}")
            if len(found) == FAULTS_MAX:
                break
        return found


def is_refused(faults: list[str]) -> bool:
    """Whether the real server would reject a body with these faults; it is more lenient than the schema."""
    tolerated = tuple(f'"{name}" is a required property' for name in TOLERATED)
    return any(not fault.endswith(tolerated) and "longer than" not in fault for fault in faults)
