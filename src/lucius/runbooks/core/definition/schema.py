"""The shape of a runbook: `runbook.schema.json`, used by editors and for validation on publication.

Error texts are in the schema as `errorMessage`, which some editors also show; where there is none, the text is
derived from the failed keyword.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from lucius.domain.payload import pointer_token
from lucius.runbooks.core.definition.faults import Finding, Found

ERRORS_MAX = 1_000

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "object": "a mapping of keys and values",
    "array": "a list",
}


def schema_bytes() -> bytes:
    """The schema file as shipped, for download."""
    return files(__package__).joinpath("runbook.schema.json").read_bytes()


@cache
def runbook_schema() -> dict[str, Any]:
    return msgspec.json.decode(schema_bytes(), type=dict[str, Any])


@cache
def _validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(runbook_schema(), offline=True)


def shape_faults(value: Any) -> Found:
    """Everything that the schema rejects, at most `ERRORS_MAX` places, in plain words."""
    faults: Found = []
    for error in islice(_validator().iter_errors(value), ERRORS_MAX):
        place = "".join(f"/{pointer_token(part)}" for part in error.instance_path)
        faults += _in_plain_words(error, place)
    return faults


def _in_plain_words(error: Any, place: str) -> Found:
    *path, keyword = error.schema_path
    kind = error.kind.as_dict()
    schema = _at(path)
    if keyword == "required":
        return [Finding(f"{place}/{pointer_token(kind['property'])}", "missing; add it")]
    if "unexpected" in kind:
        known = [*schema["properties"]]
        return [Finding(f"{place}/{pointer_token(name)}", "unknown key", name, known) for name in kind["unexpected"]]
    if "error" in kind:  # The key is at fault, not its value.
        return [Finding(f"{place}/{pointer_token(kind['error'].instance)}", schema["errorMessage"])]
    if error.instance is None and keyword != "not":
        return [Finding(place, "has no value; set one or remove the key")]
    return [Finding(place, schema.get("errorMessage") or _sentence(keyword, schema))]


def _at(path: list[Any]) -> Any:
    schema: Any = runbook_schema()
    for token in path:
        schema = schema[token]
    return schema


def _sentence(keyword: str, schema: dict[str, Any]) -> str:
    limit = schema[keyword]
    match keyword:
        case "type":
            return f"must be {_TYPES[limit]}"
        case "enum":
            return f"must be one of {', '.join(limit)}"
        case "minimum" | "maximum":
            return f"must be from {schema['minimum']} to {schema['maximum']}"
        case "minLength":
            return "must not be empty"
        case "maxLength":
            return f"too long: at most {limit} characters are allowed"
        case "minItems":
            return f"needs at least {limit} of them; add one"
        case _:
            return f"too many: at most {limit} are allowed"
