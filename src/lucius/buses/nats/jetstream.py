"""JetStream's API as far as the bus needs it, over one connection."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from lucius.buses.nats.connection import Connection, Headers, NoResponders, Request, answered
from lucius.domain.time import Instant
from lucius.ports.bus import BusUnavailable

T = TypeVar("T")

AT_ONCE_MAX = 256
"""Requests that wait for their answers at the same time, within one call."""

WRONG_LAST_SEQUENCE = 10071
STREAM_EXISTS = 10058
MISSING = (10014, 10059)
"""There is no such consumer, or no such stream."""
CONSUMER_EXISTS = (10105, 10148)
MESSAGE_NOT_FOUND = (10037, 10043, 10057)
TOO_LARGE = 10054
NO_RESOURCES = 10023
"""The servers, or the account, have no room left; a stream that is full itself says something else."""

NANOSECONDS = 1_000_000_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ApiError(BusUnavailable):
    """JetStream answered with an error."""

    def __init__(self, what: str, error: Mapping[str, Any]) -> None:
        self.reason = str(error.get("description", "without a reason"))
        super().__init__(f"NATS JetStream refuses {what}: {self.reason}")
        self.code = int(error.get("err_code", 0))


class Stored(Struct, frozen=True):
    """A message as a stream has it."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    body: bytes
    stored_at: Instant


class PublishedAs(Struct, frozen=True):
    seq: int
    is_duplicate: bool


async def all_of(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results of many requests. All have ended when this returns, also if one fails."""
    results: list[T] = []
    for start in range(0, len(work), AT_ONCE_MAX):
        answers = await asyncio.gather(*work[start : start + AT_ONCE_MAX], return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if failed:
            for left in work[start + AT_ONCE_MAX :]:
                if asyncio.iscoroutine(left):
                    left.close()
            raise failed[0]
        results += [answer for answer in answers if not isinstance(answer, BaseException)]
    return results


class JetStream:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def call(self, subject: str, body: Any = None) -> dict[str, Any]:
        """Raises `ApiError`, and `BusUnavailable` if nobody answers."""
        payload = b"" if body is None else _encode(body)
        answer = _decode((await self.connection.request(f"$JS.API.{subject}", payload)).data)
        if "error" in answer:
            raise ApiError(subject, answer["error"])
        return answer

    async def publish(self, subject: str, body: bytes, headers: Headers) -> PublishedAs:
        published = (await self.publish_all([Request(subject, body, headers)]))[0]
        if isinstance(published, ApiError | NoResponders):
            raise published
        return published

    async def publish_all(self, messages: Sequence[Request]) -> list[PublishedAs | ApiError | NoResponders]:
        """What came of each message."""
        answers = await self._ask(messages)
        return [_published(one.subject, answer) for one, answer in zip(messages, answers, strict=True)]

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The newest message with this subject, as the stream's leader knows it."""
        try:
            answer = await self.call(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except ApiError as error:
            if error.code in MESSAGE_NOT_FOUND:
                return None
            raise
        return _stored(answer["message"])

    async def page(self, stream: str, subject: str, from_seq: int, limit: int) -> list[Stored]:
        """The messages with these subjects from a sequence on, oldest first."""
        body = _encode({"seq": max(1, from_seq), "next_by_subj": subject, "batch": limit})
        found, _ = await self.connection.collect(f"$JS.API.DIRECT.GET.{stream}", body, limit + 1)
        return [_directly_stored(message) for message in found]

    async def delete(self, stream: str, seq: int) -> bool:
        """Whether there was such a message. Its bytes are gone from the file when its block is compacted."""
        return (await self.delete_all([(stream, seq)]))[0]

    async def delete_all(self, places: Sequence[tuple[str, int]]) -> list[bool]:
        """The same for many messages, each given by its stream and sequence."""
        calls = [(f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True}) for stream, seq in places]
        requests = [Request(f"$JS.API.{subject}", _encode(body)) for subject, body in calls]
        were_there = []
        for (subject, _), answer in zip(calls, await self._ask(requests), strict=True):
            error = _decode(answered(answer).data).get("error")
            if error is not None and int(error.get("err_code", 0)) not in MESSAGE_NOT_FOUND:
                raise ApiError(subject, error)
            were_there.append(error is None)
        return were_there

    async def _ask(self, requests: Sequence[Request]) -> list[Msg | NoResponders]:
        answers: list[Msg | NoResponders] = []
        for start in range(0, len(requests), AT_ONCE_MAX):
            answers += await self.connection.request_all(requests[start : start + AT_ONCE_MAX])
        return answers

    async def stream(self, stream: str) -> dict[str, Any]:
        return await self.call(f"STREAM.INFO.{stream}")

    async def consumer(self, stream: str, consumer: str) -> dict[str, Any]:
        return await self.call(f"CONSUMER.INFO.{stream}.{consumer}")

    async def stream_names(self, subject: str) -> set[str]:
        names: set[str] = set()
        while True:
            answer = await self.call("STREAM.NAMES", {"subject": subject, "offset": len(names)})
            page = answer.get("streams") or []
            names.update(page)
            if not page or len(names) >= answer["total"]:
                return names

    async def pull(self, stream: str, consumer: str, limit: int) -> list[Msg]:
        """What a consumer has to deliver now."""
        body = _encode({"batch": limit, "no_wait": True})
        found, _ = await self.connection.collect(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, limit)
        return found


def _published(subject: str, message: Msg | NoResponders) -> PublishedAs | ApiError | NoResponders:
    if isinstance(message, NoResponders):
        return message
    answer = _decode(message.data)
    if "error" in answer:
        return ApiError(f"a message to {subject}", answer["error"])
    return PublishedAs(answer["seq"], bool(answer.get("duplicate")))


def _stored(message: Mapping[str, Any]) -> Stored:
    return Stored(
        seq=message["seq"],
        subject=message["subject"],
        headers=_read_headers(base64.b64decode(message.get("hdrs", ""))),
        body=base64.b64decode(message.get("data", "")),
        stored_at=_instant(message["time"]),
    )


def _directly_stored(message: Msg) -> Stored:
    headers = message.headers or {}
    return Stored(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        headers=headers,
        body=message.data,
        stored_at=_instant(headers["Nats-Time-Stamp"]),
    )


def _read_headers(raw: bytes) -> dict[str, str]:
    lines = raw.decode().split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}


def _instant(text: str) -> Instant:
    """From RFC 3339 with up to nine digits after the point."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)
