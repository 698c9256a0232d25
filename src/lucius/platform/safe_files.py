"""Files opened by descriptor, without following links.

A checked path may be different when it is opened: a folder may be swapped for a link in between. So nothing is checked
in advance. Starting from a trusted folder, each name is opened relative to its parent, and a name that is a link fails.
The opened file is then checked through its descriptor.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lucius.platform.errors import NonRetryable
from lucius.platform.file_roots import Place

TEMPORARY_PREFIX = ".lucius-"
COPY_BYTES = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO would wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_file(place: Place, what: str, bytes_max: int, ref: str) -> BinaryIO:
    """The file, to read from. Raises `NonRetryable`, naming the ref, if it does not exist or may not be read."""
    if not place.names:
        raise NonRetryable("INPUT_NOT_A_FILE", f"the {what} names the folder {place.root}/")
    try:
        handle = _open_to_read(place, what)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NonRetryable("INPUT_NOT_FOUND", f"the {what} {ref} does not exist") from error
    except PermissionError as error:
        raise NonRetryable("INPUT_FORBIDDEN", f"the {what} {ref} may not be read") from error
    try:
        _check_readable(os.fstat(handle), place, what, bytes_max)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def write_file(place: Place, what: str, content: bytes | Path) -> None:
    """Write the whole file, creating its folders; the content of another file is copied. Raises `NonRetryable` if
    there is a link or a folder in its place."""
    folder_mode, file_mode = (0o700, 0o600) if place.is_private else (0o755, 0o644)
    place.root.mkdir(folder_mode, parents=True, exist_ok=True)
    with _folder_of(place, what, folder_mode) as folder:
        name = place.names[-1]
        with suppress(FileNotFoundError):
            # Replacing a link would be harmless, but its creator expects the result at its target.
            _check_replaceable(os.stat(name, dir_fd=folder, follow_symlinks=False), what, name)
        _replace(folder, name, content, file_mode)


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """The same for a path chosen by the service, whose folder exists."""
    folder = os.open(path.parent, _FOLDER)
    try:
        _replace(folder, path.name, content, mode)
    finally:
        os.close(folder)


def sync_folder(folder: Path) -> None:
    """A new name in a folder is durable only after the folder is synced."""
    handle = os.open(folder, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_to_read(place: Place, what: str) -> int:
    with _folder_of(place, what) as folder:
        return _open(place.names[-1], _READ, folder, what)


def _check_readable(found: os.stat_result, place: Place, what: str, bytes_max: int) -> None:
    name = place.names[-1]
    if not stat.S_ISREG(found.st_mode):
        raise NonRetryable("INPUT_NOT_A_FILE", f"the {what} {name!r} is not a regular file")
    if found.st_nlink > 1 and not place.hard_links_allowed:
        # Otherwise a hard link in a tenant's folder could expose another owner's file.
        raise NonRetryable("INPUT_FORBIDDEN", f"the {what} {name!r} has {found.st_nlink} hard links; make a copy of it")
    if found.st_size > bytes_max:
        raise NonRetryable("INPUT_TOO_LARGE", f"the {what} has {found.st_size} bytes; at most {bytes_max} are read")


def _check_replaceable(found: os.stat_result, what: str, name: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise NonRetryable("OUTPUT_REF_INVALID", f"the {what} names a folder; it must name a file")
    if stat.S_ISLNK(found.st_mode):
        raise _link_refused(what, name)
    if not stat.S_ISREG(found.st_mode):
        raise NonRetryable("OUTPUT_FORBIDDEN", f"the {what} {name!r} is not a regular file")


@contextmanager
def _folder_of(place: Place, what: str, create_mode: int | None = None) -> Iterator[int]:
    """A descriptor of the file's folder. `create_mode` creates missing folders."""
    folder = os.open(place.root, _FOLDER)
    try:
        for name in place.names[:-1]:
            inner = _open_folder(name, folder, what, create_mode)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open_folder(name: str, parent: int, what: str, create_mode: int | None) -> int:
    try:
        return _open(name, _FOLDER | os.O_NOFOLLOW, parent, what)
    except FileNotFoundError:
        if create_mode is None:
            raise
    with suppress(FileExistsError):  # Created concurrently.
        os.mkdir(name, create_mode, dir_fd=parent)
    return _open(name, _FOLDER | os.O_NOFOLLOW, parent, what)


def _open(name: str, flags: int, folder: int, what: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, folder):
            raise _link_refused(what, name) from error
        if error.errno == errno.ENXIO:  # A socket.
            raise NonRetryable("INPUT_NOT_A_FILE", f"the {what} {name!r} is not a regular file") from error
        raise


def _is_link(name: str, folder: int) -> bool:
    """Only for the message: the name may have changed again."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _link_refused(what: str, name: str) -> NonRetryable:
    return NonRetryable("PATH_FORBIDDEN", f"the {what} contains the symbolic link {name!r}; name the file itself")


def _replace(folder: int, name: str, content: bytes | Path, mode: int) -> None:
    """Readers see the complete old or new file, even after a crash, because the content is synced first."""
    temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    handle = os.open(temporary, _CREATE, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, COPY_BYTES)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
