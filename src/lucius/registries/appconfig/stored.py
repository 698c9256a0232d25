"""What a store holds now, for those who change or copy it: also values that serving would refuse."""

from __future__ import annotations

from msgspec import Struct

from lucius.ports.registry import Problem
from lucius.registries.appconfig.keys import KEY_LINE, PREFIX, identity_of, kind_of
from lucius.registries.appconfig.reading import FOREIGN_KEY, LargeDocuments, content_of
from lucius.registries.appconfig.sentinel import Sentinel, digest_of
from lucius.registries.appconfig.store import AppConfigStore, Setting, StoreFailed
from lucius.registries.contents import Contents, Document, Kind, Rules, read_contents

SOURCE = f"{PREFIX}{Kind.PROTOCOL}:*"
"""Where protocols would be."""


class Stored(Struct, frozen=True):
    sentinel: Sentinel
    settings: dict[str, Setting]
    """By key; without the sentinel."""
    documents: dict[str, bytes]
    """By identity. Where a blob cannot be read, a sentence that says so."""
    unreadable_keys: tuple[str, ...]
    foreign_keys: tuple[str, ...]
    """Keys with our prefix that are none of the registry's."""
    raw: tuple[Document, ...]
    """The documents that can be read from the store, valid or not."""
    problems: tuple[Problem, ...]
    """What keeps others from being read, and foreign keys."""
    contents: Contents
    """What serving would make of it all."""

    @property
    def is_one_state(self) -> bool:
        """Whether no push is under way or ended halfway."""
        digest = self.sentinel.text.digest
        return not self.sentinel.text.is_pushing and digest in ("", digest_of(values_of(self.settings)))


def values_of(settings: dict[str, Setting]) -> dict[str, str]:
    return {key: setting.value for key, setting in settings.items()}


async def read_stored(store: AppConfigStore, large: LargeDocuments | None, rules: Rules) -> Stored:
    """Raises `StoreFailed`."""
    sentinel = await store.sentinel()
    assert sentinel is not None, "without a known ETag there is always an answer"
    settings = await store.read_all()
    documents: list[Document] = []
    problems: list[Problem] = []
    contents: dict[str, bytes] = {}
    unreadable: list[str] = []
    for key in sorted(settings):
        try:
            found = await content_of(settings[key], large)
        except StoreFailed as error:
            found = Problem(key, None, str(error))
        kind, identity = kind_of(key), identity_of(key)
        if isinstance(found, Problem):
            problems.append(found)
            unreadable.append(key)
            contents[identity] = f"({found.detail})\n".encode()
        else:
            contents[identity] = found
            if kind is not None:
                documents.append(Document(kind, key, found, identity))
        if kind is None:
            problems.append(Problem(key, None, FOREIGN_KEY))
    foreign = tuple(key for key in sorted(settings) if kind_of(key) is None)
    read = read_contents(documents, rules, SOURCE, problems, KEY_LINE)
    return Stored(sentinel, settings, contents, tuple(unreadable), foreign, tuple(documents), tuple(problems), read)
