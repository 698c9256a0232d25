"""Service Bus's SQL for filters and rule actions, compiled to functions of a message.

A filter lets through what is true; see `sql_logic` for what is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from lucius.testing.servicebus.message import PARTITION_KEY_ANNOTATION, Message
from lucius.testing.servicebus.sql_logic import (
    COMPARISONS,
    Expression,
    both,
    calculated,
    compared,
    constant,
    either,
    like_pattern,
    negated,
    plain,
)
from lucius.testing.servicebus.sql_tokens import SqlError, Token, tokens

SYSTEM_PROPERTIES = {
    "messageid": "message_id",
    "correlationid": "correlation_id",
    "to": "to",
    "replyto": "reply_to",
    "label": "subject",
    "subject": "subject",
    "sessionid": "session_id",
    "replytosessionid": "reply_to_session_id",
    "contenttype": "content_type",
}
DEPTH_MAX = 50


def compile_filter(text: str) -> Callable[[Message], bool]:
    parser = _Parser(text)
    predicate = parser.disjunction()
    parser.expect_end()
    return lambda message: predicate(message) is True


def compile_action(text: str) -> Callable[[Message], Message]:
    """`SET name = expression` and `REMOVE name`, one after the other, parted by semicolons or line ends."""
    parser = _Parser(text)
    steps: list[Callable[[Message], Message]] = []
    while not parser.at_end():
        if parser.takes_operator(";"):
            continue
        steps.append(parser.assignment())

    def apply(message: Message) -> Message:
        for step in steps:
            message = step(message)
        return message

    return apply


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    # --- Tokens ------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _advance(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def at_end(self) -> bool:
        return self._next.kind == "end"

    def takes_word(self, *words: str) -> bool:
        return self._next.is_word(*words) and bool(self._advance())

    def takes_operator(self, *operators: str) -> bool:
        return self._next.is_operator(*operators) and bool(self._advance())

    def expect_end(self) -> None:
        if not self.at_end():
            raise self._error("an operator or the end")

    def _expect(self, symbol: str) -> None:
        if not self.takes_operator(symbol):
            raise self._error(repr(symbol))

    def _error(self, wanted: str) -> SqlError:
        found = self._next.text or "the end"
        return SqlError(f"Position {self._next.at}: {wanted} was expected, not {found!r}, in {self._text!r}.")

    # --- Predicates --------------------------------------------------------------------------------------------------

    def disjunction(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SqlError(f"More than {DEPTH_MAX} expressions are nested in each other.")
        found = self._conjunction()
        while self.takes_word("OR"):
            found = either(found, self._conjunction())
        self._depth -= 1
        return found

    def _conjunction(self) -> Expression:
        found = self._negation()
        while self.takes_word("AND"):
            found = both(found, self._negation())
        return found

    def _negation(self) -> Expression:
        is_negative = False
        while self.takes_word("NOT"):
            is_negative = not is_negative
        found = self._comparison()
        return negated(found) if is_negative else found

    def _comparison(self) -> Expression:
        if self.takes_word("EXISTS"):
            self._expect("(")
            subject = self._property()
            self._expect(")")
            return lambda message: subject(message) is not None
        left = self._sum()
        if self._next.kind == "operator" and self._next.text in COMPARISONS:
            return compared(self._advance().text, left, self._sum())
        if self.takes_word("IS"):
            is_negative = self.takes_word("NOT")
            if not self.takes_word("NULL"):
                raise self._error("NULL")
            return lambda message: (left(message) is None) is not is_negative
        is_negative = self.takes_word("NOT")
        if self.takes_word("IN"):
            found = self._in_list(left)
        elif self.takes_word("LIKE"):
            found = self._like(left)
        elif is_negative:
            raise self._error("IN or LIKE")
        else:
            return left
        return negated(found) if is_negative else found

    def _in_list(self, left: Expression) -> Expression:
        self._expect("(")
        found = compared("=", left, self._sum())
        while self.takes_operator(","):
            found = either(found, compared("=", left, self._sum()))
        self._expect(")")
        return found

    def _like(self, left: Expression) -> Expression:
        pattern = self._sum()
        escape = self._advance().text if self.takes_word("ESCAPE") else ""

        def matches(message: Message) -> bool | None:
            value, text = left(message), pattern(message)
            if not isinstance(value, str) or not isinstance(text, str):
                return None
            return like_pattern(text, escape).fullmatch(value) is not None

        return matches

    # --- Expressions -------------------------------------------------------------------------------------------------

    def _sum(self) -> Expression:
        found = self._product()
        while self._next.is_operator("+", "-"):
            found = calculated(self._advance().text, found, self._product())
        return found

    def _product(self) -> Expression:
        found = self._factor()
        while self._next.is_operator("*", "/", "%"):
            found = calculated(self._advance().text, found, self._factor())
        return found

    def _factor(self) -> Expression:
        sign = 1
        while self._next.is_operator("+", "-"):
            sign = -sign if self._advance().text == "-" else sign
        operand = self._operand()
        return operand if sign == 1 else calculated("-", lambda message: 0, operand)

    def _operand(self) -> Expression:
        token = self._next
        if self.takes_operator("("):
            inside = self.disjunction()
            self._expect(")")
            return inside
        if token.kind == "string":
            return constant(self._advance().text)
        if token.kind == "number":
            text = self._advance().text
            return constant(int(text) if text.isdigit() else float(text))
        if self.takes_word("TRUE"):
            return constant(True)
        if self.takes_word("FALSE"):
            return constant(False)
        if self.takes_word("NULL"):
            return constant(None)
        return self._property()

    def _property(self) -> Expression:
        scope, name = self._property_name()
        if scope == "user":
            return lambda message: plain(message.application_properties.get(name))
        if name.lower() == "partitionkey":
            return lambda message: plain(message.annotations.get(PARTITION_KEY_ANNOTATION))
        found = self._system_property(name)
        return lambda message: plain(message.value_of(found))

    def _property_name(self) -> tuple[str, str]:
        if self._next.kind not in ("name", "quoted"):
            raise self._error("a value or a property")
        first = self._advance()
        if not self.takes_operator("."):
            if self._next.is_operator("("):
                raise SqlError(f"The function {first.text!r} is not supported by the test server.")
            return "user", first.text
        if not first.is_word("SYS", "USER") or self._next.kind not in ("name", "quoted"):
            raise self._error("a property after 'sys.' or 'user.'")
        return first.text.lower(), self._advance().text

    def _system_property(self, name: str) -> str:
        known = SYSTEM_PROPERTIES.get(name.lower())
        if known is None:
            names = ", ".join(sorted(SYSTEM_PROPERTIES))
            raise SqlError(f"sys.{name} is not supported by the test server; supported: {names}, partitionkey.")
        return known

    # --- Actions -----------------------------------------------------------------------------------------------------

    def assignment(self) -> Callable[[Message], Message]:
        if self.takes_word("SET"):
            scope, name = self._property_name()
            self._expect("=")
            value = self._sum()
            if scope == "user":
                return lambda message: message.with_application_properties({name: value(message)})
            known = self._system_property(name)
            return lambda message: message.with_property(known, value(message))
        if self.takes_word("REMOVE"):
            scope, name = self._property_name()
            if scope == "user":
                return lambda message: message.without_application_property(name)
            known = self._system_property(name)
            return lambda message: message.with_property(known, None)
        raise self._error("SET or REMOVE")
