"""Installs what tests take from npm, before any test's clock runs: `python -m tests.prepare`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests import azurite, node_packages
from tests.console import chromium

CACHE = Path(__file__).parents[1] / ".pytest_cache" / "d" / "npm"
"""Where `pytestconfig.cache.mkdir("npm")` is."""


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    installs: list[Callable[[Path], Path]] = [
        chromium.install,
        azurite.install,
        partial(node_packages.install, packages=node_packages.SERVICE_BUS),
        partial(node_packages.install, packages=node_packages.KUBERNETES_MODELS),
        partial(node_packages.install, packages=node_packages.PROMQL),
        partial(node_packages.install, packages=node_packages.OPENID_PROVIDER),
    ]
    with ThreadPoolExecutor(len(installs)) as pool:
        for installed in [pool.submit(install, CACHE) for install in installs]:
            installed.result()


if __name__ == "__main__":
    main()
