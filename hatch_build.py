"""Puts the commit that a wheel is built from into it, as `lucius/commit.txt`; `lucius version` shows it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        packaged = Path(self.root) / "src" / "lucius" / "commit.txt"  # In a source distribution.
        if version == "editable" or packaged.exists():
            return
        self._folder = tempfile.TemporaryDirectory()
        written = Path(self._folder.name) / "commit.txt"
        written.write_text(commit_of(self.root) + "\n")
        target = "src/lucius/commit.txt" if self.target_name == "sdist" else "lucius/commit.txt"
        build_data["force_include"][str(written)] = target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def commit_of(folder: str) -> str:
    ran = subprocess.run(  # noqa: S603 - a fixed command
        ["git", "-C", folder, "rev-parse", "HEAD"],  # noqa: S607 - git is where the builder has it
        capture_output=True, text=True, timeout=10, check=False,
    )  # fmt: skip
    return ran.stdout.strip() or "unknown"
