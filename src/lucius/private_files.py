"""Files that only the user who runs LUCIUS may access: they contain tokens, keys and tenants' data.

A folder's permissions are tightened only if it is LUCIUS's own. A data folder that is also used otherwise, such as
`/tmp`, keeps its permissions, and only what LUCIUS puts there is private.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("lucius.data")

DEFAULT_NAME = ".lucius"
OWN_NAMES = (
    "lucius.db", "api-key", "callback-key", "services", "sample", "workspace", "files", "logs", "postgres",
    "temporal.db", "nats", "profile.", "registry-cache", "azurite", "storage-key", "servicebus", "appconfig",
)  # fmt: skip
"""Prefixes of the names of everything that LUCIUS puts into its data folder."""
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
OTHERS = 0o077


def make_private_folder(folder: Path) -> None:
    """Create the data folder, or remove other users' permissions on an existing one. Logs a warning if it is shared."""
    if not folder.exists():
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        return
    entries = list(folder.iterdir())
    foreign = [entry.name for entry in entries if not entry.name.startswith(OWN_NAMES)]
    if foreign and folder.name != DEFAULT_NAME:
        log.warning(
            "the data folder %s is not used by LUCIUS alone (it contains %s), so its permissions are unchanged: "
            "give LUCIUS its own folder (LUCIUS_DATA)", folder, sorted(foreign)[0],
        )  # fmt: skip
    else:
        tighten(folder)
    for entry in entries:
        if entry.name.startswith(OWN_NAMES):
            tighten(entry)


def make_private_file(path: Path) -> None:
    """Create the file empty if it does not exist, and make it private."""
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
    tighten(path)


def tighten(path: Path) -> None:
    """Remove other users' permissions, if the path exists and belongs to this user. Links are not followed."""
    try:
        found = path.lstat()
        if found.st_uid == os.geteuid() and found.st_mode & OTHERS and not stat.S_ISLNK(found.st_mode):
            path.chmod(PRIVATE_FOLDER if stat.S_ISDIR(found.st_mode) else PRIVATE_FILE)
    except FileNotFoundError:
        return
