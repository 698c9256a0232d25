"""The version before this one, from the repository's own history, installed with its own locked requirements."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.deploy.chart import ROOT

COMMIT = "7034c95ccc5ee3cdc4725a6c903e89f0a96bf054"
"""The version that upgrades begin at: the last one before rolling upgrades were tested."""
EXTRAS = "server,postgres,temporal"
SECONDS_MAX = 300


def install(cache: Path) -> Path:
    """Its `lucius`. What is in `cache` from an earlier run is used again."""
    place = cache / COMMIT
    program = place / "opt" / "bin" / "lucius"
    if not program.exists():
        shutil.rmtree(place, ignore_errors=True)
        source, dist = place / "source", place / "dist"
        _check_out(source)
        # As `make setup` and `make wheel` of that version do, with the tools of this one.
        _run(sys.executable, "src/lucius/console/vendor.py", folder=source)
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, folder=source)
        shutil.copy(source / "requirements" / "runtime.txt", dist / "requirements.txt")
        _run(ROOT / "deploy" / "image" / "install.sh", dist, EXTRAS, place / "opt", folder=place)
    return program


def _check_out(folder: Path) -> None:
    git = ["git", "-C", str(ROOT)]
    known = subprocess.run([*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True, timeout=60)
    assert known.returncode == 0, (
        f"this clone has no commit {COMMIT}, the version that upgrades are tested from. If the clone is shallow, run"
        " 'git fetch --unshallow'"
    )
    archive = subprocess.run([*git, "archive", COMMIT], capture_output=True, check=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def _run(*command: str | Path, folder: Path) -> None:
    own = Path(sys.executable).parent
    variables = {
        "PATH": f"{own}:{os.environ['PATH']}", "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1",
    }  # fmt: skip
    ran = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
