"""Secrets that the embedded default generates and keeps in its data folder."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from lucius.domain.callbacks import CallbackKey
from lucius.private_files import PRIVATE_FOLDER
from lucius.settings import Settings, SettingsError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_embedded(settings: Settings) -> bool:
    """Whether everything is on this machine: one process, nothing shared."""
    return not settings.ledger.startswith(("postgres", "aztables:"))


def with_secrets(settings: Settings) -> Settings:
    """The settings with the secrets that the embedded default generates: an API key and a callback key.

    Both are kept in the data folder, readable only by its owner. Processes that share a ledger must also share these
    secrets, so none are generated for them.
    """
    if not is_embedded(settings):
        if not settings.callback_keys:
            raise SettingsError(
                "LUCIUS_CALLBACK_KEYS is not set: processes that share a ledger must share the keys that sign callback"
                " and job tokens. Set it to id:secret, the same for all of them"
            )
        return settings
    with data_folder_errors(settings):
        return _with_stored_secrets(settings, Path(settings.data))


@contextmanager
def data_folder_errors(settings: Settings) -> Iterator[None]:
    """Reports in one sentence that the data folder cannot be used: read-only, not a folder, or of another user."""
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"the data folder {settings.data} cannot be used: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}; choose another with --data or LUCIUS_DATA"
        ) from error


def _with_stored_secrets(settings: Settings, folder: Path) -> Settings:
    api_key = settings.api_key
    has_other_credentials = bool(settings.api_keys_file or settings.jwt_issuer)
    if not api_key and not has_other_credentials:
        if settings.host not in LOOPBACK:
            raise SettingsError(
                f"LUCIUS_HOST={settings.host} is not loopback: set LUCIUS_API_KEY, or another way to log in"
            )
        api_key = stored_secret(folder / "api-key", lambda: f"lk_{secrets.token_urlsafe(24)}")
    keys = settings.callback_keys or (stored_secret(folder / "callback-key", lambda: f"k1:{secrets.token_hex(32)}"),)
    return replace(settings, api_key=api_key, callback_keys=keys)


def stored_secret(path: Path, make: Callable[[], str] = lambda: secrets.token_hex(32)) -> str:
    """The secret in this file, which is created atomically: a partial key would make every later start fail."""
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if not path.exists():
        descriptor, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # Readable only by its owner.
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(make() + "\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # Another process was faster: use its secret.
                os.link(draft, path)
        finally:
            os.unlink(draft)
    return path.read_text().strip()


def callback_keys(settings: Settings) -> tuple[CallbackKey, ...]:
    keys = []
    for pair in settings.callback_keys:
        name, _, secret = pair.partition(":")
        if not name.isalnum() or len(secret) < 16:
            raise SettingsError(
                "LUCIUS_CALLBACK_KEYS: each must be id:secret, with an id of letters and digits and a secret of 16 or"
                " more characters"
            )
        keys.append(CallbackKey(name, secret.encode()))
    return tuple(keys)
