from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lucius.client.call import Json
from lucius.client.errors import AnswerInvalid

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a list. Pass `next` as `cursor` to continue; it is `None` at the end."""

    items: list[T]
    next: str | None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def page_of(read: Callable[[Any], T], name: str = "items") -> Callable[[Json], Page[T]]:
    return lambda content: Page(items_of(read, name)(content), content.get("next"))


def items_of(read: Callable[[Any], T], name: str = "items") -> Callable[[Json], list[T]]:
    """For a list without pages."""

    def read_items(content: Json) -> list[T]:
        items = content.get(name)
        if not isinstance(items, list):
            raise AnswerInvalid(f"the answer has no list of {name}; is it a LUCIUS server?")
        return [read(item) for item in items]

    return read_items
