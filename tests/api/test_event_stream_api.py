"""The audit trail, followed live: server-sent events as they come, resumed where a reader left off."""

from __future__ import annotations

import json
from typing import Any

from tests.api.event_streams import follow


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
    ids = {name: directive[name] for name in directive if name != "type"}
    # Each changes the tenth that the progress is in, and so leaves an event.
    beats = [{"type": "HEARTBEAT", **ids, "progress": 0.1 + 0.2 * (place % 2)} for place in range(450)]
    answer = await api.client.post("/v1/callbacks:batch", json={"callbacks": beats})
    assert {one["outcome"] for one in answer.json()["outcomes"]} == {"APPLIED"}
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
        api.context.stopping.set()
        rest = await stream.rest()
    assert rest[-1] == {"event": "end", "data": '{"status":"IN_PROGRESS"}'}


async def test_stream_of_an_unknown_job_is_a_problem(api: Any) -> None:
    answer = await api.client.get(
        "/v1/jobs/018f6b1e-7c00-7000-8000-0123456789ab/events", headers={"Accept": "text/event-stream"}
    )
    api.assert_problem(answer, 404, "JOB_NOT_FOUND")
