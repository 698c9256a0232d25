"""Templates: `{{Name}}` in a step's function and in the values of its params. Plain substitution, no expressions.

Columns and specials are substituted when a step is created, output variables when it is dispatched. In between, a place
that waits for an output variable is stored in parts, so that a column's value is data from then on and never parsed as
a template, whatever it contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.payload import pointer_token, pointer_tokens
from lucius.runbooks.core.definition.model import Step

BATCH_ID = "_batch_id"
BATCH_START_TIME = "_batch_start_time"
SPECIALS = frozenset({BATCH_ID, BATCH_START_TIME})
VARIABLE_CHARS_MAX = 128

_BRACES = re.compile(r"\{\{([^{}]*)\}\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KNOWN_SHOWN_MAX = 10
_encode = msgspec.json.Encoder().encode


class Variable(Struct, frozen=True):
    name: str


class TemplateFault(ValueError):
    """Text with braces that are not a valid template."""


class UnknownVariable(Exception):
    """A step that cannot be sent because variables have no value. `names` are the variables, without duplicates."""

    def __init__(self, names: Iterable[str], message: str) -> None:
        super().__init__(message)
        self.names = tuple(names)


class Resolved(Struct, frozen=True):
    function: str
    """The text from the runbook while `late` has its parts."""
    params: dict[str, Any]
    late: dict[str, list[Any]] | None = None
    """By pointer: the parts `{"text": …}` and `{"var": …}` of values that wait for output variables."""


@lru_cache(1_024)
def parse(text: str) -> tuple[str | Variable, ...]:
    """The text and the variables in it, in order. Raises `TemplateFault`."""
    parts: list[str | Variable] = []
    end = 0
    for match in _BRACES.finditer(text):
        parts += _plain(text[end : match.start()])
        parts.append(Variable(_variable_name(match[1])))
        end = match.end()
    return (*parts, *_plain(text[end:]))


def _plain(text: str) -> list[str | Variable]:
    for braces in ("{{", "}}"):
        if braces in text:
            raise TemplateFault(f"{braces} is unbalanced; a variable is {{{{Name}}}}; put a space between plain braces")
    return [text] if text else []


def _variable_name(text: str) -> str:
    name = text.strip()
    if not name:
        raise TemplateFault("{{}} names no variable; write a name between the braces")
    if len(name) > VARIABLE_CHARS_MAX or _CONTROL.search(name):
        raise TemplateFault(f"a variable name must be one line of at most {VARIABLE_CHARS_MAX} characters")
    return name


def texts_in(function: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text that may be a template, with its pointer relative to the step."""
    yield "/function", function
    yield from _texts(params, "/params")


def _texts(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _texts(member, f"{pointer}/{pointer_token(key)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{pointer}/{index}")


def variables_in(step: Step) -> list[tuple[str, str]]:
    """Pairs of a pointer relative to the step and a variable, in text order. Raises `TemplateFault`."""
    return [
        (pointer, part.name)
        for pointer, text in texts_in(step.function, step.params)
        for part in parse(text)
        if isinstance(part, Variable)
    ]


def resolve(step: Step, row: Mapping[str, Any], specials: Mapping[str, Any], outputs: frozenset[str]) -> Resolved:
    """Specials take precedence over outputs, outputs over columns. Raises `UnknownVariable` with all unknown names."""
    unknown = [
        (pointer, name)
        for pointer, name in variables_in(step)
        if name not in specials and name not in outputs and name not in row
    ]
    if unknown:
        raise _unknown(f"step {step.name}, ", unknown, [*specials, *sorted(outputs), *row])
    late: dict[str, list[Any]] = {}
    resolver = _Resolver({**{name: row[name] for name in row if name not in outputs}, **specials}, late)
    function = resolver.value(step.function, "/function")
    params = resolver.value(step.params, "/params")
    return Resolved(step.function if "/function" in late else _as_text(function), params, late or None)


class _Resolver:
    def __init__(self, known: Mapping[str, Any], late: dict[str, list[Any]]) -> None:
        self._known = known
        self._late = late

    def value(self, value: Any, pointer: str) -> Any:
        if isinstance(value, str):
            return self._text(parse(value), pointer)
        if isinstance(value, Mapping):
            return {key: self.value(member, f"{pointer}/{pointer_token(key)}") for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, f"{pointer}/{index}") for index, item in enumerate(value)]
        return value

    def _text(self, parts: tuple[str | Variable, ...], pointer: str) -> Any:
        if any(isinstance(part, Variable) and part.name not in self._known for part in parts):
            self._late[pointer] = [self._late_part(part) for part in parts]
            return None
        values = [self._known[part.name] if isinstance(part, Variable) else part for part in parts]
        return _joined(values)

    def _late_part(self, part: str | Variable) -> dict[str, str]:
        if isinstance(part, str):
            return {"text": part}
        if part.name in self._known:
            return {"text": _as_text(self._known[part.name])}
        return {"var": part.name}


def finish(
    function: str, params: Mapping[str, Any], late: Mapping[str, Sequence[Any]] | None, values: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Substitutes the output variables. Raises `UnknownVariable`; does not change its arguments."""
    late = late or {}
    needed = [(pointer, part["var"]) for pointer, parts in late.items() for part in parts if "var" in part]
    unknown = [(pointer, name) for pointer, name in needed if name not in values]
    if unknown:
        raise _unknown("", unknown, list(values))
    whole: Any = {"function": function, "params": params}
    for pointer, parts in late.items():
        filled = _joined([values[part["var"]] if "var" in part else part["text"] for part in parts])
        whole = _with(whole, pointer_tokens(pointer), filled)
    return _as_text(whole["function"]), dict(whole["params"])


def _with(value: Any, tokens: tuple[str, ...], filled: Any) -> Any:
    """A copy of the value along the path to the place."""
    if not tokens:
        return filled
    if isinstance(value, Mapping):
        return {**value, tokens[0]: _with(value[tokens[0]], tokens[1:], filled)}
    index = int(tokens[0])
    return [*value[:index], _with(value[index], tokens[1:], filled), *value[index + 1 :]]


def _joined(values: list[Any]) -> Any:
    """A single value keeps its type."""
    return values[0] if len(values) == 1 else "".join(map(_as_text, values))


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    text = _encode(value).decode()
    # Types that JSON represents as strings (dates, decimals) are text here too, without quotes.
    return msgspec.json.decode(text, type=str) if text.startswith('"') else text


def _unknown(step: str, unknown: list[tuple[str, str]], known: list[str]) -> UnknownVariable:
    names = list(dict.fromkeys(name for _, name in unknown))
    places = ", ".join(f"{{{{{name}}}}} at {pointer}" for pointer, name in unknown[:_KNOWN_SHOWN_MAX])
    shown = ", ".join(known[:_KNOWN_SHOWN_MAX]) + (" …" if len(known) > _KNOWN_SHOWN_MAX else "")
    return UnknownVariable(names, f"{step}unknown variable: {places}; known: {shown or 'none'}")


def outputs_of(step: Step, result: Any) -> dict[str, Any]:
    """The step's output variables from a worker's result; missing fields are left out."""
    found = {variable: _field(result, field) for variable, field in step.output_params.items()}
    return {variable: value for variable, value in found.items() if value is not _MISSING}


_MISSING = object()


def _field(result: Any, field: str) -> Any:
    whole = _member(result, field)
    if whole is not _MISSING or "." not in field:
        return whole
    for name in field.split("."):
        result = _member(result, name)
    return result


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        return _MISSING
    if name in value:
        return value[name]
    folded = name.casefold()
    return next((member for key, member in value.items() if str(key).casefold() == folded), _MISSING)
