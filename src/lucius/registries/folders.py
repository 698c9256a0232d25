"""Files of a registry's folder: how they are named, and how one is written."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from hashlib import sha256
from pathlib import Path

from lucius.registries.contents import Kind

FILE_MODE = 0o644
NAME_CHARS_MAX = 120
_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]|^\.")


def file_name(identity: str) -> str:
    """Where a new file for this document goes, under the folder. Nothing in an identity leads anywhere else."""
    kind, _, name = identity.partition(":")
    if not name:
        return f"{Kind.GLOBALS}.yaml"
    if kind == Kind.PROTOCOL:
        name = "-".join(name.rsplit(":", 1))
    safe = _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name.encode()).decode()
    if len(safe) > NAME_CHARS_MAX:
        safe = f"{safe[:NAME_CHARS_MAX]}-{sha256(name.encode()).hexdigest()[:16]}"
    return f"{Kind(kind)}/{safe}.yaml"


def write_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replaces the file as a whole; without `mode`, its own stays. Readers never see half of it, and a draft begins
    with a dot, which registries do not read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode is None:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else FILE_MODE
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # Readable only by its owner.
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(mode)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
