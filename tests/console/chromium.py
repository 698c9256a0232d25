"""Headless Chromium and axe-core from npm."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests import node_packages

PACKAGES = {"@sparticuz/chromium": "147.0.0", "axe-core": "4.14.0"}
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


def install(cache: Path) -> Path:
    """A folder with `chromium`, its libraries in `lib`, and `axe.min.js`."""
    return node_packages.install(cache, PACKAGES, _unpack)


def _unpack(made: Path) -> None:
    modules = made / "node_modules"
    node_packages.run([node_packages.node_program(), "-e", UNPACK, modules / "@sparticuz" / "chromium" / "bin", made])
    shutil.unpack_archive(made / "al2023.tar", made, filter="data")
    shutil.copy(modules / "axe-core" / "axe.min.js", made / "axe.min.js")
    shutil.rmtree(modules)
