"""What the image contains, as a folder: the wheel installed by the image's own script, run by another user.

The interpreter may lie where that user cannot read, so the tree has a copy of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.deploy.chart import ROOT

USER = 10001
"""The image's user. A test run that is not root's cannot become it, and stays who it is."""
EXTRAS = "server,postgres,temporal,reference"
BUILD_SECONDS_MAX = 300


def build(folder: Path) -> Path:
    """The prefix of the installation in `folder`, readable by everybody and writable by nobody."""
    dist, prefix = folder / "dist", folder / "opt"
    own = Path(sys.executable).parent
    _run("make", "--no-print-directory", "wheel", f"DIST={dist}", f"VENV={own.parent}", folder=ROOT)
    _copy_python(folder / "python")
    _run(
        ROOT / "deploy" / "image" / "install.sh", dist, EXTRAS, prefix,
        folder=folder, PATH=f"{own}:{os.environ['PATH']}", UV_PYTHON=str(folder / "python" / "bin" / "python3"),
        UV_LINK_MODE="copy", **library_path(folder),
    )  # fmt: skip
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)
    return prefix


def library_path(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(folder / "python" / "lib")}


def _copy_python(target: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (target / "bin").mkdir(parents=True)
    program = Path(sys.base_prefix) / "bin" / version
    shutil.copy(program if program.exists() else Path(sys.executable).resolve(), target / "bin" / "python3")
    left_out = shutil.ignore_patterns("site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__")
    shutil.copytree(sysconfig.get_path("stdlib"), target / "lib" / version, ignore=left_out, symlinks=False)
    (target / "lib" / version / "site-packages").mkdir()
    for library in Path(sysconfig.get_config_var("LIBDIR") or "").glob(f"lib{version}*.so*"):
        shutil.copy(library, target / "lib" / library.name)


def _run(*command: str | Path, folder: Path, **variables: str) -> None:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1", **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
