"""The plan as text: Bicep for Azure, or the Config.json of emulators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lucius.buses.servicebus.entities import RULE, SubscriptionPlan, TopicPlan, iso_duration


def as_json(topics: Sequence[TopicPlan]) -> str:
    """For Microsoft's emulator and for `lucius servicebus-emulator`."""
    namespace = {"Name": "sbemulatorns", "Queues": [], "Topics": [_topic(topic) for topic in topics]}
    document = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}
    return json.dumps(document, indent=2)


def _topic(topic: TopicPlan) -> dict[str, Any]:
    return {
        "Name": topic.name,
        "Properties": {
            "RequiresDuplicateDetection": True,
            "DuplicateDetectionHistoryTimeWindow": iso_duration(topic.duplicates),
        },
        "Subscriptions": [_subscription(one) for one in topic.subscriptions],
    }


def _subscription(one: SubscriptionPlan) -> dict[str, Any]:
    made: dict[str, Any] = {
        "Name": one.name,
        "Properties": {
            "LockDuration": iso_duration(one.lock),
            "MaxDeliveryCount": one.delivery_max,
            "DefaultMessageTimeToLive": iso_duration(one.ttl),
            "DeadLetteringOnMessageExpiration": True,
        },
    }
    if one.where:
        rule = {"FilterType": "Correlation", "CorrelationFilter": {"Properties": dict(one.where)}}
        made["Rules"] = [{"Name": RULE, "Properties": rule}]
    return made


def as_bicep(topics: Sequence[TopicPlan]) -> str:
    lines = [
        "// Topics and subscriptions of LUCIUS, for a namespace that exists.",
        "param namespaceName string",
        "",
        "resource namespace 'Microsoft.ServiceBus/namespaces@2022-10-01-preview' existing = {",
        "  name: namespaceName",
        "}",
    ]
    for topic in topics:
        lines += _bicep_topic(topic)
    return "\n".join(lines)


def _bicep_topic(topic: TopicPlan) -> Iterable[str]:
    symbol = _symbol(topic.name)
    yield from (
        "",
        f"resource {symbol} 'Microsoft.ServiceBus/namespaces/topics@2022-10-01-preview' = {{",
        "  parent: namespace",
        f"  name: '{topic.name}'",
        "  properties: {",
        "    requiresDuplicateDetection: true",
        f"    duplicateDetectionHistoryTimeWindow: '{iso_duration(topic.duplicates)}'",
        "    enablePartitioning: false",
        "  }",
        "}",
    )
    for one in topic.subscriptions:
        own = f"{symbol}_{_symbol(one.name)}"
        yield from (
            "",
            f"resource {own} 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2022-10-01-preview' = {{",
            f"  parent: {symbol}",
            f"  name: '{one.name}'",
            "  properties: {",
            f"    lockDuration: '{iso_duration(one.lock)}'",
            f"    maxDeliveryCount: {one.delivery_max}",
            f"    defaultMessageTimeToLive: '{iso_duration(one.ttl)}'",
            "    deadLetteringOnMessageExpiration: true",
            "  }",
            "}",
        )
        if one.where:
            values = " ".join(f"{_key(name)}: {_literal(value)}" for name, value in one.where)
            # A rule with the name of the default rule takes its place.
            yield from (
                "",
                f"resource {own}_rule 'Microsoft.ServiceBus/namespaces/topics/subscriptions/rules@2022-10-01-preview' ="
                " {",
                f"  parent: {own}",
                "  name: '$Default'",
                "  properties: {",
                "    filterType: 'CorrelationFilter'",
                f"    correlationFilter: {{ properties: {{ {values} }} }}",
                "  }",
                "}",
            )


def _symbol(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"'{name}'"


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
