"""Builds msgspec's type information of every Struct while the process has one thread.

msgspec builds it at the first decode and publishes it before it is complete: a second thread that decodes the same type
meanwhile reads an incomplete table and crashes the process. Building everything takes about 15 ms.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.json import Decoder


def warm_up() -> None:
    """Call before threads start, and again after an import that adds Structs."""
    for struct in struct_types():
        try:
            Decoder(struct)
        except TypeError:
            # A union of untagged Structs cannot be decoded from JSON, so no thread ever decodes it.
            continue


def struct_types(base: type[Struct] = Struct) -> Iterator[type[Struct]]:
    """Every Struct of the modules imported so far."""
    for struct in base.__subclasses__():
        yield struct
        yield from struct_types(struct)
