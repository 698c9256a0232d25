"""From key-values to documents. A document that is too large for a key-value is in a blob, and the value says where."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol as Port

import msgspec
from msgspec import Struct

from lucius.ports.registry import Problem
from lucius.registries.appconfig.keys import identity_of, kind_of
from lucius.registries.appconfig.store import Setting, StoreFailed
from lucius.registries.contents import Document

VALUE_BYTES_MAX = 9_000
"""App Configuration allows 10 KB for a key-value with its key, label and everything else."""
YAML_TYPE = "application/yaml"
BLOB_TYPE = "application/vnd.lucius.blob+json"
FOREIGN_KEY = "this is no key of the registry: lucius:globals, lucius:protocols:ID:VERSION or lucius:tenants:ID"


class BlobReference(Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a key whose document is in a blob."""

    blob: str
    """Its name in the container that the settings name: a value cannot make LUCIUS read anywhere else."""
    sha256: str


class LargeDocuments(Port):
    """Where documents beyond `VALUE_BYTES_MAX` are."""

    async def read(self, name: str) -> bytes:
        """Raises `StoreFailed`."""
        ...

    async def write(self, name: str, content: bytes) -> None:
        """Raises `StoreFailed`. Content that is there already is left as it is."""
        ...


async def read_documents(
    settings: Mapping[str, Setting], large: LargeDocuments | None
) -> tuple[list[Document], list[Problem]]:
    """Raises `StoreFailed` if a blob cannot be reached."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for key in sorted(settings):
        kind = kind_of(key)
        if kind is None:
            problems.append(Problem(key, None, FOREIGN_KEY))
            continue
        found = await content_of(settings[key], large)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            documents.append(Document(kind, key, found, identity_of(key)))
    return documents, problems


async def content_of(setting: Setting, large: LargeDocuments | None) -> bytes | Problem:
    """The document of a key, or what is wrong with its reference. Raises `StoreFailed` if a blob cannot be reached."""
    if not is_blob(setting):
        return setting.value.encode()
    reference = reference_in(setting)
    if reference is None:
        return Problem(setting.key, None, 'a reference to a blob is {"blob": "NAME", "sha256": "…"}')
    if large is None:
        return Problem(setting.key, None, "this is in a blob: set LUCIUS_REGISTRY_CONTAINER to its container")
    content = await large.read(reference.blob)
    if sha256(content).hexdigest() != reference.sha256:
        return Problem(setting.key, None, f"the blob {reference.blob} is not the one that was published")
    return content


def setting_of(key: str, content: bytes) -> Setting:
    """What a key must hold for this document."""
    if not is_large(content):
        return Setting(key, content.decode(), content_type=YAML_TYPE)
    digest = sha256(content).hexdigest()
    reference = BlobReference(f"{key.replace(':', '/')}/{digest[:16]}.yaml", digest)
    return Setting(key, msgspec.json.encode(reference).decode(), content_type=BLOB_TYPE)


def is_large(content: bytes) -> bool:
    return len(content) > VALUE_BYTES_MAX


def is_blob(setting: Setting) -> bool:
    return setting.content_type.partition(";")[0].strip() == BLOB_TYPE


def reference_in(setting: Setting) -> BlobReference | None:
    """Of a key whose document is in a blob; None if its value is no reference."""
    try:
        return msgspec.json.decode(setting.value, type=BlobReference)
    except (msgspec.MsgspecError, ValueError):
        return None


async def written_setting(key: str, content: bytes, large: LargeDocuments | None) -> Setting:
    """What a key must hold for this document. Writes the blob of a large one, which nobody sees before the key."""
    setting = setting_of(key, content)
    if is_blob(setting):
        if large is None:
            raise StoreFailed(
                f"{key} has {len(content)} bytes; a value holds {VALUE_BYTES_MAX}, and more goes to a blob: set"
                " LUCIUS_REGISTRY_CONTAINER"
            )
        await large.write(msgspec.json.decode(setting.value, type=BlobReference).blob, content)
    return setting
