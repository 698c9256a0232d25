"""Makes the chart's `values.schema.json` and its README from `values.yaml` and the settings of LUCIUS.

`python deploy/helm/generate.py` writes both; a test compares them with what is committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from lucius.settings import Settings

CHART = Path(__file__).parent / "lucius"
Schema = dict[str, Any]

SECRET = ("api_key", "callback_keys", "nats_password", "nats_token", "oidc_client_secret", "rate_gate", "smtp_password",
          "servicebus_administration", "servicebus_connection", "storage_connection", "storage_sas",
          "temporal_api_key")  # fmt: skip
"""Settings that belong into a Secret, never into values."""

NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
ANY_MAP: Schema = {"type": "object"}
RESOURCES: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": ANY_MAP, "limits": ANY_MAP},
    "required": ["requests", "limits"],
}
REPLICAS: Schema = {"type": "integer", "minimum": 0, "maximum": 1000}
VARIABLES: Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Z][A-Z0-9_]*$"},
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
SCALING: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["minReplicas", "maxReplicas", "type"],
    "properties": {
        "minReplicas": REPLICAS,
        "maxReplicas": {**REPLICAS, "minimum": 1},
        "type": {"enum": ["azure-servicebus", "nats-jetstream", "postgresql"]},
        "backlogPerReplica": {"type": "integer", "minimum": 1},
        "metadata": TEXTS,
        "authenticationRef": NAME,
    },
}
SERVICE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": NAME,
        "image": {"type": "string"},
        "command": {"type": "array", "items": {"type": "string"}},
        "args": {"type": "array", "items": {"type": "string"}},
        "replicas": REPLICAS,
        "settings": VARIABLES,
        "secretKeys": {"type": "array", "items": {"type": "string"}},
        "resources": RESOURCES,
        "drainSeconds": {"type": "integer", "minimum": 0, "maximum": 86400},
        "stateSize": {"type": "string"},
        "scaling": SCALING,
    },
}


def lucius_settings() -> Schema:
    """Any setting of the server that is no secret; a name that is none is refused, as LUCIUS itself would."""
    names = sorted(f"LUCIUS_{name.upper()}" for name in Settings.__struct_fields__ if name not in SECRET)
    return {**VARIABLES, "propertyNames": {"enum": names}}


SPECIAL: dict[str, Schema] = {
    "services": {"type": "array", "items": SERVICE},
    "registry.files": {**TEXTS, "propertyNames": {"pattern": r"^(globals|protocols/[\w.-]+|tenants/[\w.-]+)\.ya?ml$"}},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "api.service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "serviceAccount.annotations": TEXTS,
    "serviceAccount.servicesAnnotations": TEXTS,
    "api.ingress.annotations": TEXTS,
    "resourceQuota.hard": ANY_MAP,
    "podAnnotations": TEXTS,
    "podLabels": TEXTS,
    "nodeSelector": TEXTS,
    "monitoring.labels": TEXTS,
    "networkPolicy.apiFrom": {"type": "array", "items": ANY_MAP},
    "networkPolicy.managementFrom": {"type": "array", "items": ANY_MAP},
    "tolerations": {"type": "array", "items": ANY_MAP},
    "topologySpreadConstraints": {"type": "array", "items": ANY_MAP},
}


def schema_of(value: Any, path: str, settings: Schema) -> Schema:
    last = path.rpartition(".")[2]
    if path in SPECIAL:
        return SPECIAL[path]
    if last == "settings":
        return settings
    if last in ("resources", "serviceResources"):
        return RESOURCES
    if isinstance(value, dict):
        inner = {name: schema_of(one, f"{path}.{name}".lstrip("."), settings) for name, one in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": inner}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0}
    if isinstance(value, list):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "string"}


def values_schema() -> str:
    schema = schema_of(yaml.safe_load((CHART / "values.yaml").read_text()), "", lucius_settings())
    # Helm adds what parent charts share.
    schema["properties"]["global"] = ANY_MAP
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, indent=2) + "\n"


def described(text: str) -> list[tuple[str, str]]:
    """The dotted name of each value, with the comment above it that begins with `# --`."""
    rows: list[tuple[str, str]] = []
    parents: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("# -- "):
            comment = [words.removeprefix("# -- ")]
        elif words.startswith("# "):
            comment.append(words.removeprefix("# "))
        elif words and ":" in words:
            level = (len(line) - len(line.lstrip())) // 2
            parents = [*parents[:level], words.partition(":")[0]]
            rows.append((".".join(parents), " ".join(comment)))
            comment = []
    return rows


def readme() -> str:
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    lines = [(CHART.parent / "README.head").read_text().rstrip(), "", "## Values", ""]
    lines += ["| value | default | meaning |", "| --- | --- | --- |"]
    for path, comment in described(text):
        value: Any = values
        for name in path.split("."):
            value = value[name]
        is_group = isinstance(value, dict) and bool(value) and not comment
        if is_group or ".resources." in path or path.startswith("serviceResources.") or ".settings." in f".{path}":
            continue
        lines.append(f"| `{path}` | `{json.dumps(value)}` | {comment} |")
    return "\n".join(lines) + "\n"


FILES = {CHART / "values.schema.json": values_schema, CHART / "README.md": readme}

if __name__ == "__main__":
    for path, make in FILES.items():
        path.write_text(make())
