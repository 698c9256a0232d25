"""Servers by name, in a private file of the user: `lucius profile`."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lucius.cli.failures import Unusable
from lucius.private_files import PRIVATE_FILE, PRIVATE_FOLDER, tighten

FILE_NAME = "profiles.json"
FILE_BYTES_MAX = 1_048_576
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ServerProfile:
    url: str
    api_key: str = field(default="", repr=False)


@dataclass
class ServerProfiles:
    profiles: dict[str, ServerProfile] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> ServerProfile:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none; `lucius profile add` adds one"
            raise Unusable(f"there is no profile {name}; known: {known}")
        return self.profiles[name]


def profiles_file(environment: Mapping[str, str] | None = None) -> Path:
    """In the user's folder for settings (XDG_CONFIG_HOME, or ~/.config)."""
    environment = os.environ if environment is None else environment
    folder = environment.get("XDG_CONFIG_HOME", "").strip()
    return (Path(folder) if folder else Path.home() / ".config") / "lucius" / FILE_NAME


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def read_profiles(path: Path | None = None) -> ServerProfiles:
    """None of them if there is no file. Raises `Unusable` for a file that is not one of profiles."""
    path = path or profiles_file()
    try:
        tighten(path)
        content = path.read_bytes()[: FILE_BYTES_MAX + 1]
    except FileNotFoundError:
        return ServerProfiles()
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from error
    try:
        document = json.loads(content)
        profiles = {
            str(name): ServerProfile(str(one["url"]), str(one.get("api_key") or ""))
            for name, one in document["profiles"].items()
        }
        current = document.get("current")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"{path} is not a file of profiles: remove it, and add them again") from error
    return ServerProfiles(profiles, current if current in profiles else None)


def write_profiles(profiles: ServerProfiles, path: Path | None = None) -> None:
    """Replaces the file as a whole; only the user may read it."""
    path = path or profiles_file()
    listed = {
        name: {"url": one.url, **({"api_key": one.api_key} if one.api_key else {})}
        for name, one in sorted(profiles.profiles.items())
    }
    content = json.dumps({"current": profiles.current, "profiles": listed}, indent=2) + "\n"
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        # mkstemp makes a file that only its owner may read.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{FILE_NAME}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as opened:
                os.fchmod(opened.fileno(), PRIVATE_FILE)
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}") from error
