"""Types of JSON fields that answers and request bodies share. OpenAPI schemas are generated from them."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta


def stated(**keywords: Any) -> Meta:
    """JSON Schema keywords that msgspec does not check when it decodes the field."""
    return Meta(extra_json_schema=keywords)


def ref(name: str) -> dict[str, str]:
    """A reference to a component schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def any_of(*names: str) -> Meta:
    """One of these components. msgspec has no unions of types that it could not tell apart when decoding."""
    return stated(anyOf=[ref(name) for name in names])


Moment = Annotated[str, Meta(examples=["2026-01-31T08:15:30.250Z"], extra_json_schema={"format": "date-time"})]
WholeNumber = Annotated[int, stated(minimum=0)]
Share = Annotated[float, stated(minimum=0, maximum=1)]
JsonObject = Annotated[Any, stated(type="object")]


class Page(TypedDict):
    """Base of lists; each adds its `items`."""

    next: Annotated[str | None, Meta(description="The `cursor` of the next page; null on the last one")]
