"""From JSON to dataclasses.

A model is a frozen dataclass. A field has the name of the JSON field, or the one in its metadata (`named`). Fields with
a default may be missing; a value of the wrong type raises `AnswerInvalid`. Unknown fields are only in `raw`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, Self, TypeVar

from lucius.client.call import Json
from lucius.client.errors import AnswerInvalid

Reader = Callable[[Any], Any]
FieldReader = tuple[str, str, bool, Reader]
"""A field's name, its name in JSON, whether it is required, and its reader."""
T = TypeVar("T")


def named(name: str) -> Any:
    """A required field that has another name in JSON."""
    return field(metadata={"name": name})


@dataclass(frozen=True, kw_only=True)
class Model:
    raw: Json = field(repr=False, compare=False)
    """The whole object as the server sent it."""

    @classmethod
    def read(cls, content: Any) -> Self:
        if not isinstance(content, dict):
            raise AnswerInvalid(f"a {cls.__name__} must be a JSON object, not {type(content).__name__}")
        found: dict[str, Any] = {}
        for name, json_name, is_required, reader in _fields_of(cls):
            if json_name in content:
                try:
                    found[name] = reader(content[json_name])
                except ValueError as error:
                    raise AnswerInvalid(f"{json_name} of a {cls.__name__} is not {error}") from error
            elif is_required:
                raise AnswerInvalid(f"a {cls.__name__} has no {json_name}; is it a LUCIUS server?")
        return cls(raw=content, **found)


def _fields_of(model: type[Model]) -> list[FieldReader]:
    if model not in _KNOWN:
        _KNOWN[model] = _readers_of(model)
    return _KNOWN[model]


def _readers_of(model: type[Model]) -> list[FieldReader]:
    hints = typing.get_type_hints(model)
    return [
        (
            entry.name,
            str(entry.metadata.get("name", entry.name)),
            entry.default is MISSING and entry.default_factory is MISSING,
            _reader(hints[entry.name]),
        )
        for entry in fields(model)
        if entry.name != "raw"
    ]


def _reader(hint: Any) -> Reader:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (_reader(argument) for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is list:
        item = _reader(arguments[0])
        return lambda value: [item(element) for element in _checked(value, list, "a list")]
    if origin is dict:
        return lambda value: _checked(value, dict, "an object")
    if isinstance(hint, type) and issubclass(hint, Model):
        return hint.read
    return _PLAIN[hint]


def _checked(value: Any, kind: type[T], meaning: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(meaning)
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number")
    return float(value)


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_checked(value, str, "a time"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("a time with an offset")
    return moment


_PLAIN: dict[Any, Reader] = {
    Any: lambda value: value,
    str: lambda value: _checked(value, str, "a string"),
    int: lambda value: _checked(value, int, "an integer"),
    bool: lambda value: _checked(value, bool, "true or false"),
    float: _number,
    datetime: _moment,
}

_KNOWN: dict[type[Model], list[FieldReader]] = {}
