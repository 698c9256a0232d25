"""Which local files refs may name. A client chooses refs freely, so this is where a service says no."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lucius.platform.errors import NonRetryable
from lucius.platform.refs import real_path

SERVER_SECRETS = ("api-key", "callback-key", "lucius.db", "lucius.db-wal", "lucius.db-shm", "services")
"""What a server on this machine keeps in its data folder and no ref may reach."""


@dataclass(frozen=True)
class FileRules:
    roots: tuple[Path, ...] = ()
    """Refs must lie in one of these folders; none means anywhere."""
    secrets: tuple[Path, ...] = ()
    """Files and folders that no ref may name, whatever the roots say."""

    def check(self, path: Path, what: str) -> None:
        real = real_path(path, what)
        if any(real.is_relative_to(secret) for secret in self.secrets):
            raise NonRetryable("PATH_FORBIDDEN", f"the {what} names what belongs to LUCIUS itself")
        if self.roots and not any(real.is_relative_to(root) for root in self.roots):
            raise NonRetryable("PATH_FORBIDDEN", f"the {what} lies in none of the folders that this service may use")


def file_rules(roots: str, state: str, data: str) -> FileRules:
    """From settings: the allowed folders, comma-separated, the services' state folder and the server's data folder."""
    allowed = tuple(Path(one.strip()).resolve() for one in roots.split(",") if one.strip())
    secrets = (Path(state), *(Path(data) / name for name in SERVER_SECRETS))
    return FileRules(allowed, tuple(path.resolve() for path in secrets))
