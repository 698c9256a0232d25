"""The Config.json of Microsoft's emulator: the same file sets up either. Every fault is named by its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lucius.testing.servicebus.filters import CorrelationFilter, Filter, Rule, SqlFilter
from lucius.testing.servicebus.properties import PropertyReader
from lucius.testing.servicebus.settings import NamespaceSettings, SubscriptionSettings, TopicSettings

CORRELATION_NAMES = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "Subject": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
BYTES_MAX = 10 * 1024 * 1024


class ConfigError(ValueError):
    """What is wrong with a Config.json, one line for each fault."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def read_config(path: Path) -> NamespaceSettings:
    if path.stat().st_size > BYTES_MAX:
        raise ConfigError([f"the file has more than {BYTES_MAX} bytes"])
    try:
        document = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"the file is not JSON: {error}"]) from error
    return settings_of(document)


def settings_of(document: Any) -> NamespaceSettings:
    return _Reader().read(document)


class _Reader:
    def __init__(self) -> None:
        self._faults: list[str] = []

    def read(self, document: Any) -> NamespaceSettings:
        settings = NamespaceSettings()
        user_config = self._mapping(document, "").get("UserConfig")
        namespaces = self._list(self._mapping(user_config, "/UserConfig").get("Namespaces"), "/UserConfig/Namespaces")
        if len(namespaces) != 1:
            self._fault("/UserConfig/Namespaces", f"one namespace is needed, not {len(namespaces)}.")
        for at, namespace in enumerate(namespaces[:1]):
            place = f"/UserConfig/Namespaces/{at}"
            given = self._mapping(namespace, place)
            for here, name, queue in self._named(given, "Queues", place, settings.queues):
                settings.queues[name] = self._properties(queue, here).queue(has_duplicate_detection=True)
            for here, name, topic in self._named(given, "Topics", place, settings.topics):
                if name.lower() in (other.lower() for other in settings.queues):
                    self._fault(f"{here}/Name", f"{name!r} is the name of a queue too.")
                settings.topics[name] = self._topic(topic, here)
        if self._faults:
            raise ConfigError(self._faults)
        return settings

    def _topic(self, given: Mapping[str, Any], place: str) -> TopicSettings:
        settings = self._properties(given, place).topic()
        for here, name, one in self._named(given, "Subscriptions", place, settings.subscriptions):
            subscription = SubscriptionSettings(self._properties(one, here).queue(has_duplicate_detection=False))
            rules: dict[str, Rule] = {}
            for rule_at, rule_name, rule in self._named(one, "Rules", here, rules):
                found = self._rule(rule_name, self._mapping(rule.get("Properties"), f"{rule_at}/Properties"), rule_at)
                if found is not None:
                    rules[rule_name] = found
            if rules:
                subscription.rules = list(rules.values())
            settings.subscriptions[name] = subscription
        return settings

    def _rule(self, name: str, given: Mapping[str, Any], place: str) -> Rule | None:
        action = self._mapping(given.get("Action") or {}, f"{place}/Properties/Action").get("SqlExpression")
        try:
            return Rule(name, self._filter(given), str(action) if action else None)
        except ValueError as error:
            self._fault(f"{place}/Properties", str(error))
            return None

    def _filter(self, given: Mapping[str, Any]) -> Filter:
        kind = str(given.get("FilterType", "Sql" if "SqlFilter" in given else "Correlation")).lower()
        if kind == "sql":
            expression = (given.get("SqlFilter") or {}).get("SqlExpression")
            if not isinstance(expression, str):
                raise ValueError("SqlFilter needs SqlExpression, a string.")
            return SqlFilter(expression)
        if kind != "correlation" or not isinstance(given.get("CorrelationFilter"), Mapping):
            raise ValueError("a rule needs FilterType 'Sql' with SqlFilter, or 'Correlation' with CorrelationFilter.")
        values = dict(given["CorrelationFilter"])
        own = values.pop("Properties", None) or {}
        unknown = sorted(set(values) - set(CORRELATION_NAMES))
        if unknown or not isinstance(own, Mapping):
            raise ValueError(f"CorrelationFilter has no {', '.join(unknown) or 'Properties that is no object'}.")
        named = {CORRELATION_NAMES[key]: str(value) for key, value in values.items() if value not in (None, "")}
        return CorrelationFilter(named, dict(own))

    # --- JSON --------------------------------------------------------------------------------------------------------

    def _properties(self, given: Mapping[str, Any], place: str) -> PropertyReader:
        properties = self._mapping(given.get("Properties") or {}, f"{place}/Properties")
        return PropertyReader(properties, lambda name, text: self._fault(f"{place}/Properties/{name}", text))

    def _named(
        self, given: Mapping[str, Any], key: str, place: str, taken: Mapping[str, Any]
    ) -> list[tuple[str, str, Mapping[str, Any]]]:
        found = []
        names = {name.lower() for name in taken}
        for at, one in enumerate(self._list(given.get(key) or [], f"{place}/{key}")):
            here = f"{place}/{key}/{at}"
            item = self._mapping(one, here)
            name = item.get("Name")
            if not isinstance(name, str) or not name or "$" in name.removeprefix("$Default"):
                self._fault(f"{here}/Name", f"must be a name, not {name!r}.")
            elif name.lower() in names:
                self._fault(f"{here}/Name", f"{name!r} is there twice.")
            else:
                names.add(name.lower())
                found.append((here, name, item))
        return found

    def _mapping(self, value: Any, place: str) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        self._fault(place, "must be an object.")
        return {}

    def _list(self, value: Any, place: str) -> list[Any]:
        if isinstance(value, list):
            return value
        self._fault(place, "must be a list.")
        return []

    def _fault(self, place: str, text: str) -> None:
        self._faults.append(f"{place or '/'}: {text}")
