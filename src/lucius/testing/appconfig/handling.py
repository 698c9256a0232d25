"""From a request to a response: `/kv`, `/locks` and `/revisions` of the REST API 2023-11-01, key-values alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from lucius.testing.appconfig.filters import NULL, Pattern
from lucius.testing.appconfig.key_values import KeyValue, KeyValues, Refusal, as_json, check_conditions, etag_of
from lucius.testing.appconfig.signatures import SignatureChecker
from lucius.testing.http_server import Request, Response

PAGE_ITEMS = 100
KIND = "application/vnd.microsoft.appconfig.{}+json; charset=utf-8"
METHODS = {"kv": ("GET", "HEAD", "PUT", "DELETE"), "locks": ("PUT", "DELETE")}


class Handler:
    def __init__(self, key_values: KeyValues, checker: SignatureChecker, clock: Callable[[], float]) -> None:
        self._key_values = key_values
        self._checker = checker
        self._clock = clock
        self._answers = 0

    def handle(self, request: Request) -> Response:
        try:
            self._checker.check(request)
            response = self._route(request)
        except Refusal as refusal:
            response = _problem(refusal)
        except (ValueError, KeyError) as error:
            response = _problem(Refusal(400, "Invalid request", str(error)))
        self._answers += 1
        # Clients send the newest token back, which would let a replica wait until it has caught up.
        token = {"Sync-Token": f"lucius=MQ==;sn={self._answers}"}
        return Response(response.status, response.body, {**response.headers, **token})

    def _route(self, request: Request) -> Response:
        parts = urlsplit(request.target)
        query = {name.lower(): values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if "api-version" not in query:
            raise Refusal(400, "API version is not specified")
        area, _, rest = parts.path.strip("/").partition("/")
        if area in METHODS and rest:
            if request.method not in METHODS[area]:
                raise Refusal(405, "Method not allowed")
            return self._one(area, unquote(rest), _label(query.get("label")), request)
        if area in ("kv", "revisions") and not rest and request.method in ("GET", "HEAD"):
            return self._list(area, parts.path, query, request)
        raise Refusal(404, "Not found")

    def _one(self, area: str, key: str, label: str | None, request: Request) -> Response:
        found = self._key_values.find(key, label)
        if request.method in ("GET", "HEAD"):
            if found is None:
                raise Refusal(404, "Not found")
            if request.headers.get("if-none-match", "").strip('"') == found.etag:
                return Response(304, headers={"ETag": f'"{found.etag}"'})
            return self._answer(found)
        check_conditions(request.headers, found)
        now = self._clock()
        if area == "locks":
            return self._answer(self._key_values.lock(key, label, request.method == "PUT", now))
        if request.method == "DELETE":
            gone = self._key_values.delete(key, label)
            return Response(204) if gone is None else self._answer(gone)
        return self._answer(self._key_values.set(_read(key, label, request.body), now))

    def _list(self, area: str, path: str, query: Mapping[str, str], request: Request) -> Response:
        keys, labels = Pattern(query.get("key")), Pattern(query.get("label"))
        if area == "kv":
            found = self._key_values.select(keys, labels)
        else:
            found = self._key_values.revisions(keys, labels)
        first = int(query.get("after") or 0)
        page, etag = found[first : first + PAGE_ITEMS], etag_of(found[first : first + PAGE_ITEMS])
        headers = {"ETag": f'"{etag}"', "Content-Type": KIND.format("kvset")}
        document: dict[str, Any] = {"items": [as_json(one, _moment(one)) for one in page], "etag": etag}
        if first + PAGE_ITEMS < len(found):
            following = {**query, "after": str(first + PAGE_ITEMS)}
            text = "&".join(f"{quote(name, safe='$')}={quote(value, safe='')}" for name, value in following.items())
            document["@nextLink"] = f"{path}?{text}"
            headers["Link"] = f'<{document["@nextLink"]}>; rel="next"'
        if request.headers.get("if-none-match", "").strip('"') == etag:
            return Response(304, headers={name: headers[name] for name in ("ETag", "Link") if name in headers})
        return Response(200, json.dumps(document).encode(), headers)

    def _answer(self, one: KeyValue) -> Response:
        headers = {
            "Content-Type": KIND.format("kv"),
            "ETag": f'"{one.etag}"',
            "Last-Modified": formatdate(one.modified_at, usegmt=True),
        }
        return Response(200, json.dumps(as_json(one, _moment(one))).encode(), headers)


def _read(key: str, label: str | None, body: bytes) -> KeyValue:
    document = json.loads(body)
    if not isinstance(document, dict):
        raise Refusal(400, "Invalid request body")
    tags = document.get("tags") or {}
    return KeyValue(key, label, document.get("value") or "", document.get("content_type") or "", tags)


def _label(text: str | None) -> str | None:
    return None if text in (None, "", NULL) else text


def _moment(one: KeyValue) -> str:
    return datetime.fromtimestamp(one.modified_at, UTC).isoformat(timespec="microseconds")


def _problem(refusal: Refusal) -> Response:
    body = {"type": "about:blank", "title": refusal.title, "status": refusal.status, "detail": refusal.detail}
    headers = {"Content-Type": "application/problem+json; charset=utf-8"}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = f'HMAC-SHA256, error="invalid_token", error_description="{refusal.detail}"'
    return Response(refusal.status, json.dumps(body).encode(), headers)
