"""The words of Service Bus's SQL: strings, numbers, names, operators."""

from __future__ import annotations

import re
from dataclasses import dataclass

EXPRESSION_CHARS_MAX = 1_024
"""Service Bus's own limit."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>'(?:[^']|'')*')
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<quoted>\[(?:[^\]]|\]\])+\]|"(?:[^"]|"")+")
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator><>|!=|>=|<=|[-+*/%=<>().,;])
    )""",
    re.VERBOSE,
)


class SqlError(ValueError):
    """The text is no expression of Service Bus's SQL, or uses what the test server does not support."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`string`, `number`, `quoted` (a delimited name), `name`, `operator` or `end`."""
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "name" and self.text.upper() in words

    def is_operator(self, *operators: str) -> bool:
        return self.kind == "operator" and self.text in operators


def tokens(text: str) -> list[Token]:
    if len(text) > EXPRESSION_CHARS_MAX:
        raise SqlError(f"The expression has {len(text)} characters; at most {EXPRESSION_CHARS_MAX} are allowed.")
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise SqlError(f"Position {at}: {text[at:].strip()[:10]!r} is not understood in {text!r}.")
        kind = str(match.lastgroup)
        found.append(Token(kind, _unquoted(kind, match.group(kind)), match.start(kind)))
        at = match.end()
    return [*found, Token("end", "", len(text))]


def _unquoted(kind: str, text: str) -> str:
    if kind == "string":
        return text[1:-1].replace("''", "'")
    if kind == "quoted":
        closing = text[-1]
        return text[1:-1].replace(closing * 2, closing)
    return text
