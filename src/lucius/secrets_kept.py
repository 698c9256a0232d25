"""Secrets that the embedded default makes up for itself and keeps in its data folder."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from lucius.domain.callbacks import CallbackKey
from lucius.settings import Settings, SettingsError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_embedded(settings: Settings) -> bool:
    """Whether everything is on this machine: one process, nothing shared."""
    return not settings.ledger.startswith("postgres")


def with_secrets(settings: Settings) -> Settings:
    """The settings with what the embedded default makes up for itself: an API key and a callback key.

    Both are kept in the data folder, readable by its owner alone. Where several processes share a ledger they must
    share these too, so there nothing is made up.
    """
    if not is_embedded(settings):
        if not settings.callback_keys:
            raise SettingsError(
                "LUCIUS_CALLBACK_KEYS is not set: processes that share a ledger must share the keys that sign callback"
                " tokens. Set it to id:secret, the same for all of them"
            )
        return settings
    folder = Path(settings.data)
    api_key = settings.api_key
    has_other_ways_in = bool(settings.api_keys_file or settings.jwt_issuer)
    if not api_key and not has_other_ways_in:
        if settings.host not in LOOPBACK:
            raise SettingsError(
                f"LUCIUS_HOST={settings.host} is not loopback: set LUCIUS_API_KEY, or another way to log in"
            )
        api_key = _kept_secret(folder / "api-key", lambda: f"lk_{secrets.token_urlsafe(24)}")
    keys = settings.callback_keys or (_kept_secret(folder / "callback-key", lambda: f"k1:{secrets.token_hex(32)}"),)
    return replace(settings, api_key=api_key, callback_keys=keys)


def _kept_secret(path: Path, make: Callable[[], str]) -> str:
    """The secret in this file, which is made whole or not at all: half a key would bar every later start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        descriptor, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # For its owner alone to read.
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(make() + "\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # Somebody else was quicker; theirs is as good.
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
                "LUCIUS_CALLBACK_KEYS: each is id:secret, the id of letters and digits, the secret of 16 or more"
            )
        keys.append(CallbackKey(name, secret.encode()))
    return tuple(keys)
