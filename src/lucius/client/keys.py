"""API keys: where they are found, and which are valid."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from lucius.client.addresses import is_loopback

KEY_VARIABLE = "LUCIUS_API_KEY"
DATA_VARIABLE = "LUCIUS_DATA"
DATA_DEFAULT = ".lucius"
KEY_FILE = "api-key"
KEY_CHARACTERS_MAX = 4_096
_KEY = re.compile(r"[!-~]*")


def is_key(text: str) -> bool:
    """Whether the text can be sent in a header: visible ASCII characters only. An empty text means no key."""
    return _KEY.fullmatch(text) is not None


def find_key(url: str, environment: Mapping[str, str] | None = None) -> str:
    """The key in `LUCIUS_API_KEY`, or else that of `lucius up` on this machine; empty if there is none."""
    environment = os.environ if environment is None else environment
    given = environment.get(KEY_VARIABLE, "").strip()
    return given or key_on_this_machine(url, environment.get(DATA_VARIABLE, "").strip() or DATA_DEFAULT)


def key_on_this_machine(url: str, data_folder: str | Path) -> str:
    """The key in the data folder of `lucius up`. It is sent only to servers on this machine."""
    if not is_loopback(url):
        return ""
    try:
        return (Path(data_folder) / KEY_FILE).read_text("utf-8")[:KEY_CHARACTERS_MAX].strip()
    except (OSError, UnicodeDecodeError):
        return ""
