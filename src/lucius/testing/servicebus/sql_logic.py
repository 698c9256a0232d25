"""How Service Bus's SQL compares and calculates.

Logic has three values: None is unknown, which a property that is missing leads to, or types that do not compare.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, cast

from lucius.testing.servicebus.message import Message

Expression = Callable[[Message], Any]
LONG_MAX = 2**63 - 1
"""What AMQP's largest number with a sign holds."""

COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod}


def constant(value: Any) -> Expression:
    return lambda message: value


def plain(value: Any) -> Any:
    """AMQP's own number and string types calculate and compare as Python's."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value) if not isinstance(value, bytes) else value


def either(left: Expression, right: Expression) -> Expression:
    def found(message: Message) -> bool | None:
        values = (left(message), right(message))
        return True if True in values else None if None in values else False

    return found


def both(left: Expression, right: Expression) -> Expression:
    def found(message: Message) -> bool | None:
        values = (left(message), right(message))
        return False if False in values else None if None in values else True

    return found


def negated(inside: Expression) -> Expression:
    def found(message: Message) -> bool | None:
        value = inside(message)
        return None if value is None else value is False

    return found


def compared(symbol: str, left: Expression, right: Expression) -> Expression:
    compare = COMPARISONS[symbol]

    def found(message: Message) -> bool | None:
        first, second = left(message), right(message)
        if first is None or second is None or _family(first) is not _family(second):
            return None
        return bool(compare(first, second))

    return found


def _family(value: Any) -> type:
    """Numbers compare with numbers, whatever their kind; anything else only with its own type."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else cast(type, type(value))


def calculated(symbol: str, left: Expression, right: Expression) -> Expression:
    calculate = ARITHMETIC[symbol]

    def found(message: Message) -> Any:
        first, second = left(message), right(message)
        if first is None or second is None or _family(first) is not _family(second):
            return None
        if isinstance(first, str) and symbol != "+":
            return None
        try:
            result = calculate(first, second)
        except (ArithmeticError, TypeError):
            return None
        return None if isinstance(result, int) and abs(result) > LONG_MAX else result

    return found


def like_pattern(text: str, escape: str) -> re.Pattern[str]:
    parts, characters = [], iter(text)
    for character in characters:
        if escape and character == escape:
            parts.append(re.escape(next(characters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
    return re.compile("".join(parts), re.DOTALL)
