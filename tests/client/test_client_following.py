"""Following a job's events through streams that break off."""

from __future__ import annotations

import json

import pytest
from tests.client.conftest import Invoke
from tests.client.faulty_server import Answer, FaultyServer

from lucius.client import AnswerInvalid, NotFound, Unauthenticated, WaitTimedOut

EVENTS = "GET /v1/jobs/j1/events"


def event(seq: int, kind: str = "ACK") -> bytes:
    data = json.dumps({"seq": seq, "at": "2026-01-31T08:15:30.250Z", "type": kind, "stepId": "ocr", "attempt_no": 1})
    return f"id: {seq}\nevent: {kind}\ndata: {data}\n\n".encode()


def end(status: str) -> bytes:
    return b'event: end\ndata: {"status":"%s"}\n\n' % status.encode()


def stream(*chunks: bytes) -> Answer:
    return Answer(200, headers={"Content-Type": "text/event-stream"}, chunks=chunks)


def test_every_event_comes_once_however_often_the_stream_breaks_off(server: FaultyServer, invoke: Invoke) -> None:
    second = event(2)
    server.on(
        EVENTS,
        stream(event(1), b": still here\n\n", second[:20]),  # Breaks off in the middle of an event.
        Answer(503, {"code": "UNAVAILABLE"}),
        stream(second[:9], second[9:] + event(3), end("IN_PROGRESS")),  # The server stops; the job goes on.
        Answer(0),
        Answer(429, {"code": "WAITS_SATURATED"}, {"Retry-After": "1"}),
        stream(event(4, "JOB_SUCCEEDED"), end("SUCCEEDED")),
    )
    followed = invoke("follow", "j1", timeout_seconds=60.0)
    assert [one.seq for one in followed] == [1, 2, 3, 4]
    assert followed[3].type == "JOB_SUCCEEDED"
    assert [one.headers["Last-Event-ID"] for one in server.calls(EVENTS)] == ["0", "1", "1", "3", "3", "3"]


def test_following_begins_after_the_event_that_is_given(server: FaultyServer, invoke: Invoke) -> None:
    server.on(EVENTS, stream(end("SUCCEEDED")))
    assert invoke("follow", "j1", after=7, timeout_seconds=60.0) == []
    assert server.received[0].headers["Last-Event-ID"] == "7"


def test_a_problem_within_the_stream_is_raised(server: FaultyServer, invoke: Invoke) -> None:
    server.on(EVENTS, stream(event(1), b"event: problem\ndata: UNAUTHENTICATED\n\n"))
    with pytest.raises(Unauthenticated):
        invoke("follow", "j1", timeout_seconds=60.0)


def test_a_refused_stream_is_raised(server: FaultyServer, invoke: Invoke) -> None:
    server.on(EVENTS, Answer(404, {"code": "JOB_NOT_FOUND", "detail": "there is no such job"}))
    with pytest.raises(NotFound, match="JOB_NOT_FOUND"):
        invoke("follow", "j1", timeout_seconds=60.0)


def test_a_stream_that_is_none_is_raised(server: FaultyServer, invoke: Invoke) -> None:
    server.on(EVENTS, stream(b"data: <html>\n\n"))
    with pytest.raises(AnswerInvalid):
        invoke("follow", "j1", timeout_seconds=60.0)


@pytest.mark.parametrize("answer", [stream(event(1)), Answer(0), stream(end("PAUSED"))])
def test_following_ends_at_its_deadline(server: FaultyServer, invoke: Invoke, answer: Answer) -> None:
    server.on(EVENTS, answer)
    with pytest.raises(WaitTimedOut, match="j1"):
        invoke("follow", "j1", timeout_seconds=0.6)
