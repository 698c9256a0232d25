"""The published schemas of the callbacks, and what a body has against them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

FAULTS_MAX = 5
TOLERATED = ("failure_class", "retry_after", "code", "message")
"""Fields that the schema asks for and the real server does without."""


class KitUnusable(Exception):
    """The kit cannot run as it was asked to; the message says what to do."""


class Shapes:
    def __init__(self) -> None:
        try:
            import jsonschema_rs
        except ImportError as error:
            raise KitUnusable("the contract kit needs jsonschema-rs: install the extra, lucius[contract]") from error
        folder = resources.files("lucius.domain.schemas")
        self._validators = {
            kind: jsonschema_rs.validator_for(json.loads(folder.joinpath(f"{kind.lower()}.json").read_text("utf-8")))
            for kind in ("ACK", "HEARTBEAT", "RESULT", "DIRECTIVE")
        }

    def faults(self, kind: str, body: dict[str, Any]) -> list[str]:
        """What is wrong with the body, by place; empty if it meets its schema."""
        found = []
        for error in self._validators[kind].iter_errors(body):
            place = "/" + "/".join(str(part) for part in error.instance_path)
            found.append(f"{place if place != '/' else 'the body'}: {error.message[:300]}")
            if len(found) == FAULTS_MAX:
                break
        return found


def is_refused(faults: list[str]) -> bool:
    """Whether the real server would refuse a body with these faults; it is more lenient than the schema."""
    tolerated = tuple(f'"{name}" is a required property' for name in TOLERATED)
    return any(not fault.endswith(tolerated) and "longer than" not in fault for fault in faults)
