"""A blob's place: what `Path` is for a file."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}")
NAME_CHARACTERS_MAX = 1_024


class BlobPath(NamedTuple):
    container: str
    name: str
    """Its parts are separated by `/`; empty for the whole container."""

    def as_uri(self) -> str:
        """Without the account, which every service has in its settings."""
        return f"blob://{self.container}/{quote(self.name)}"

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for part in self.name.split("/") if part)

    @property
    def is_folder(self) -> bool:
        return not self.name or self.name.endswith("/")

    def joined(self, *names: str) -> BlobPath:
        return BlobPath(self.container, "/".join((*self.parts, *names)))

    def above(self, levels: int) -> BlobPath:
        return BlobPath(self.container, "/".join(self.parts[: len(self.parts) - levels]))

    def is_below(self, folder: BlobPath) -> bool:
        """Whether it is the folder or in it."""
        return self.container == folder.container and self.parts[: len(folder.parts)] == folder.parts
