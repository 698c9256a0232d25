"""The management port of a process, where it said that it is."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any

from tests.crash.processes import Process

ANSWER_SECONDS_MAX = 30.0


def addresses(process: Process) -> list[str]:
    """Of its own life and of those before it, or of others that write to the same log."""
    return re.findall(r"^  management  (http://\S+)$", process.log, re.MULTILINE)


def look(process: Process) -> tuple[int, dict[str, Any]]:
    """Its readiness: the status code, and what was found."""
    status, text = ask(addresses(process)[-1], "/readyz")
    return status, json.loads(text)


def metrics_of(process: Process) -> str:
    status, text = ask(addresses(process)[-1], "/metrics")
    assert status == 200
    return text


def ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address + path, timeout=ANSWER_SECONDS_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
