"""Reads YAML as plain data: no aliases, anchors, tags, merge keys or duplicate keys, within limits, with line numbers.

Plain scalars are read by YAML 1.2's core schema, so that `no` and `1:30` stay text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from msgspec import Struct

from lucius.domain.payload import pointer_token

BYTES_MAX = 262_144
DEPTH_MAX = 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NAMED: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    "-.inf": float("-inf"),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


class YamlFault(Exception):
    """Text that is not supported YAML; `line` counts from 1."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(detail)
        self.line = line
        self.detail = detail


class YamlText(Struct, frozen=True):
    """A document, and the line of each of its values by JSON pointer."""

    value: Any
    lines: dict[str, int]

    def line_of(self, pointer: str) -> int:
        """The line of the value, or of the nearest enclosing one."""
        while pointer and pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        return self.lines.get(pointer, 1)


def read_yaml(content: bytes) -> YamlText:
    """Raises `YamlFault`."""
    if len(content) > BYTES_MAX:
        raise YamlFault(1, f"the file has {len(content)} bytes; at most {BYTES_MAX} are allowed")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise YamlFault(content.count(b"\n", 0, error.start) + 1, "the file is not UTF-8") from None
    try:
        # Events are checked first: they show anchors and depth before a tree is built.
        checker = _EventChecker()
        for event in yaml.parse(text, Loader=_LOADER):
            checker.check(event)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlFault(mark.line + 1 if mark else 1, error.problem or "this is not YAML") from None
    except yaml.YAMLError as error:
        raise YamlFault(1, f"this is not YAML: {error}".splitlines()[0]) from None
    lines: dict[str, int] = {}
    return YamlText(None if node is None else _value(node, "", lines), lines)


class _EventChecker:
    def __init__(self) -> None:
        self._depth = 0

    def check(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise YamlFault(line, "anchors and aliases are not supported; write the value out")
        if getattr(event, "tag", None) is not None:
            raise YamlFault(line, f"the tag {event.tag} is not supported; write a plain value")
        if isinstance(event, yaml.CollectionStartEvent):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise YamlFault(line, f"nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._depth -= 1


def _value(node: yaml.Node, pointer: str, lines: dict[str, int]) -> Any:
    lines.setdefault(pointer, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, pointer, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, f"{pointer}/{index}", lines) for index, item in enumerate(node.value)]
    return _scalar(node)


def _mapping(node: yaml.MappingNode, pointer: str, lines: dict[str, int]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key_node, member in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlFault(line, "a key must be plain text")
        key = str(key_node.value)
        if key == "<<" and not key_node.style:
            raise YamlFault(line, "merge keys are not supported; write the members out")
        if key in members:
            raise YamlFault(line, f"duplicate key {key!r}")
        member_pointer = f"{pointer}/{pointer_token(key)}"
        lines[member_pointer] = line
        members[key] = _value(member, member_pointer, lines)
    return members


def _scalar(node: Any) -> Any:
    text: str = node.value
    if node.style:
        return text
    if text in _NAMED:
        return _NAMED[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
