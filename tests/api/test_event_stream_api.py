"""The audit trail, followed live: server-sent events as they come, resumed where a reader left off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lucius.api.app import create_front


class Stream:
    """A reader of one stream. It speaks ASGI: the test client's own transport hands over only whole answers."""

    def __init__(self, api: Any, job_id: str, query: str, headers: dict[str, str]) -> None:
        sent = {"accept": "text/event-stream", "authorization": api.client.headers["authorization"], **headers}
        self._front = create_front(api.desk)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/v1/jobs/{job_id}/events",
            "raw_path": f"/v1/jobs/{job_id}/events".encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "server": ("lucius.test", 80),
            "client": ("test", 1),
        }
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False
        self._text = ""
        self.headers: dict[str, str] = {}

    async def run(self) -> None:
        await self._front(self._scope, self._receive, self._messages.put)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def hang_up(self) -> None:
        self._gone.set()

    async def event(self) -> dict[str, str] | None:
        """The next event, waited for; None at the end of the stream."""
        while "\n\n" not in self._text:
            async with asyncio.timeout(20):
                message = await self._messages.get()
            if message["type"] == "http.response.start":
                assert message["status"] == 200
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                continue
            self._text += message.get("body", b"").decode()
            if not message.get("more_body") and "\n\n" not in self._text:
                return None
        block, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in block.splitlines())

    async def rest(self) -> list[dict[str, str]]:
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found


@asynccontextmanager
async def follow(api: Any, job_id: str, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    stream = Stream(api, job_id, query, headers)
    running = asyncio.create_task(stream.run())
    try:
        yield stream
    finally:
        stream.hang_up()
        await asyncio.wait_for(running, 20)


async def test_stream_follows_a_job_to_its_end(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    async with follow(api, job_id) as stream:
        first = [await stream.event() for _ in range(3)]
        assert [event and event["event"] for event in first] == ["ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED"]
        assert stream.headers["content-type"].startswith("text/event-stream")
        await api.work()
        rest = await stream.rest()
    assert [event["event"] for event in rest] == ["ACK", "RESULT", "JOB_SUCCEEDED", "end"]
    assert [event.get("id") for event in rest] == ["4", "5", "6", None]
    assert json.loads(rest[-1]["data"]) == {"status": "SUCCEEDED"}
    assert [json.loads(event["data"]) for event in rest[:-1]] == (await api.events(job_id))[3:]


async def test_stream_resumes_after_the_last_event_seen(api: Any) -> None:
    job_id = await api.accepted()
    await api.work()
    for query, headers in (("", {"last-event-id": "4"}), ("cursor=4", {}), ("cursor=1", {"last-event-id": "4"})):
        async with follow(api, job_id, query, **headers) as stream:
            assert [event["event"] for event in await stream.rest()] == ["RESULT", "JOB_SUCCEEDED", "end"]
    async with follow(api, job_id, **{"last-event-id": "nonsense"}) as stream:
        assert len(await stream.rest()) == 7


async def test_long_trail_is_streamed_whole(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    await api.ack(directive)
    acks = [{"type": "ACK", **{name: directive[name] for name in directive if name != "type"}}] * 450
    answer = await api.client.post("/v1/callbacks:batch", json={"callbacks": acks})
    assert {one["outcome"] for one in answer.json()["outcomes"]} == {"DUPLICATE"}
    await api.result(directive)
    async with follow(api, job_id) as stream:
        events = await stream.rest()
    assert [event.get("id") for event in events] == [*map(str, range(1, 457)), None]


async def test_stream_ends_when_its_reader_hangs_up_or_the_server_stops(api: Any) -> None:
    job_id = await api.accepted()
    async with follow(api, job_id) as stream:
        assert await stream.event()
    async with follow(api, job_id) as stream:
        assert await stream.event()
        api.desk.stopping.set()
        rest = await stream.rest()
    assert rest[-1] == {"event": "end", "data": '{"status":"IN_PROGRESS"}'}


async def test_stream_of_an_unknown_job_is_a_problem(api: Any) -> None:
    answer = await api.client.get(
        "/v1/jobs/018f6b1e-7c00-7000-8000-0123456789ab/events", headers={"Accept": "text/event-stream"}
    )
    api.assert_problem(answer, 404, "JOB_NOT_FOUND")
