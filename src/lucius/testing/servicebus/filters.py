"""Rules of subscriptions: which messages of its topic a subscription gets, and what is changed in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lucius.testing.servicebus.message import PROPERTY_INDEX, Message
from lucius.testing.servicebus.sql import compile_action, compile_filter

DEFAULT_RULE = "$Default"


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Every value given must be equal in the message."""

    properties: Mapping[str, str] = field(default_factory=dict)
    """By the names in `PROPERTY_INDEX`."""
    application_properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.properties and not self.application_properties:
            raise ValueError("A correlation filter names at least one property.")
        unknown = set(self.properties) - set(PROPERTY_INDEX)
        if unknown:
            raise ValueError(f"A correlation filter cannot compare {', '.join(sorted(unknown))}.")

    def matches(self, message: Message) -> bool:
        return all(_equal(message.value_of(name), value) for name, value in self.properties.items()) and all(
            name in message.application_properties and _equal(message.application_properties[name], value)
            for name, value in self.application_properties.items()
        )


@dataclass(frozen=True, slots=True)
class SqlFilter:
    expression: str
    matches: Callable[[Message], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", compile_filter(self.expression))


@dataclass(frozen=True, slots=True)
class TrueFilter:
    def matches(self, message: Message) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    def matches(self, message: Message) -> bool:
        return False


Filter = CorrelationFilter | SqlFilter | TrueFilter | FalseFilter


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    filter: Filter
    action: str | None = None
    change: Callable[[Message], Message] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "change", compile_action(self.action) if self.action else None)

    @classmethod
    def default(cls) -> Rule:
        return cls(DEFAULT_RULE, TrueFilter())


def passed(rules: list[Rule], message: Message) -> list[Message]:
    """What reaches the subscription: once if any rule without an action matches, and once more for each with one."""
    matching = [rule for rule in rules if rule.filter.matches(message)]
    copies = [rule.change(message) for rule in matching if rule.change is not None]
    return [message, *copies] if len(copies) < len(matching) else copies


def _equal(found: Any, wanted: Any) -> bool:
    """Numbers are equal whatever their kind; ids may be UUIDs on the wire."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, int | float) or isinstance(wanted, int | float):
        return isinstance(found, int | float) and isinstance(wanted, int | float) and found == wanted
    return found is not None and str(found) == str(wanted)
