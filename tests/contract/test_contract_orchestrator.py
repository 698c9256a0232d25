"""The played orchestrator keeps the contract itself: deliveries, rules, answers."""

from __future__ import annotations

import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lucius.contract.directives import Directives, Sample
from lucius.contract.exchange import IDS, Attempt, ScriptedAnswer, always, in_turn
from lucius.contract.listener import Listener
from lucius.contract.orchestrator import Orchestrator
from lucius.contract.process import ServiceProcess
from lucius.contract.shapes import Shapes

KEY = "the-key"
LOCK_SECONDS = 0.3
SECONDS_MAX = 20.0
Answered = tuple[int, dict[str, Any]]


class Played:
    """The orchestrator behind its listener, and the smallest service that can talk to it."""

    def __init__(self, folder: Path) -> None:
        self.shapes = Shapes()
        self.orchestrator = Orchestrator("count", KEY, self.shapes)
        self.listener = Listener("127.0.0.1", 0, self.orchestrator)
        self.directives = Directives(Sample("count", "COUNT"), folder, self.listener.url)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.listener.port, timeout=SECONDS_MAX)

    def close(self) -> None:
        self.connection.close()
        self.listener.close()

    def publish(self, directive: dict[str, Any] | None = None) -> Attempt:
        made = directive or self.directives.first("acme", 30.0, 0.0, is_slow=False)
        attempt = Attempt(made, LOCK_SECONDS)
        self.orchestrator.publish(attempt)
        return attempt

    def post(self, path: str, body: Any, **headers: str) -> Answered:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **named})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def pull(self, count_max: int = 10, wait_seconds: float = 0.0) -> list[dict[str, Any]]:
        body = {"service": "count", "max": count_max, "wait_seconds": wait_seconds}
        status, answer = self.post("/v1/directives:pull", body, Authorization=f"Bearer {KEY}")
        assert status == 200, answer
        found: list[dict[str, Any]] = answer["directives"]
        return found

    def say(self, kind: str, attempt: Attempt, token: str | None = None, **fields: Any) -> Answered:
        body = {name: attempt.directive[name] for name in IDS} | fields
        return self.post(f"/v1/callbacks/{kind}", body, Lucius_Callback_Token=token or attempt.token)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    one = Played(tmp_path)
    yield one
    one.close()


def test_directives_meet_the_published_schema(played: Played) -> None:
    first = played.directives.first("müller & söhne 100%", 2.0, 4.0, is_slow=True)
    assert played.shapes.faults("DIRECTIVE", first) == []
    assert first["contract_test"] == {"work_seconds": 4.0}
    second = played.directives.attempt(first, 2)
    assert second["workspace_ref"].endswith(f"/m%C3%BCller%20%26%20s%C3%B6hne%20100%25/{first['jobId']}/COUNT/2/")
    assert {name for name in first if first[name] != second[name]} == {
        "attempt_no",
        "lease_id",
        "ack_by",
        "workspace_ref",
        "callback_token",
    } - ({"ack_by"} if first["ack_by"] == second["ack_by"] else set())


def test_a_directive_is_locked_delivered_again_and_settled_by_its_ack(played: Played) -> None:
    attempt = played.publish()
    assert played.pull() == [attempt.directive]
    assert played.pull() == []
    assert played.pull(wait_seconds=5) == [attempt.directive]
    assert played.say("ack", attempt) == (200, {"outcome": "APPLIED", "cancel_requested": False})
    assert played.pull(wait_seconds=3 * LOCK_SECONDS) == []


def test_a_pull_takes_no_more_than_it_asks_for(played: Played) -> None:
    for _ in range(3):
        played.publish()
    assert len(played.pull(count_max=2)) == 2


def test_callbacks_are_answered_in_the_order_of_the_rules(played: Played) -> None:
    first = played.publish()
    assert played.say("heartbeat", first)[1]["outcome"] == "APPLIED"
    assert played.say("ack", first)[1]["outcome"] == "DUPLICATE"
    assert played.say("result", first, status="SUCCEEDED")[1]["outcome"] == "APPLIED"
    assert played.say("result", first, status="SUCCEEDED")[1]["outcome"] == "DUPLICATE"
    assert played.say("result", first, status="FAILED", failure_class="RETRYABLE")[1]["outcome"] == "LATE"
    status, problem = played.say("heartbeat", first)
    assert (status, problem["code"]) == (409, "JOB_TERMINAL")
    second = played.publish(played.directives.attempt(first.directive, 2))
    status, problem = played.say("result", first, status="SUCCEEDED")
    assert (status, problem["code"]) == (409, "STALE_ATTEMPT")
    assert played.say("ack", second)[0] == 200


def test_a_callback_is_genuine_only_with_its_own_ids_and_token(played: Played) -> None:
    one, other = played.publish(), played.publish()
    assert played.say("ack", one, token=other.token)[0] == 401
    assert played.say("ack", one, attempt_no=2)[0] == 401
    assert played.say("ack", one, jobId="unheard-of")[0] == 401
    assert played.say("ack", one, tenant_id=" ACME ")[0] == 200
    told = [fault for call in played.orchestrator.calls for fault in call.faults]
    assert "the token of attempt 1 of job" in told[0]
    assert told[1:] == ["attempt_no is 2, not 1", f"jobId is 'unheard-of', not {one.job_id!r}"]


def test_bodies_that_the_real_server_refuses_are_refused(played: Played) -> None:
    attempt = played.publish()
    assert played.say("result", attempt)[0] == 422
    assert played.say("result", attempt, status="DONE")[0] == 422
    assert played.say("heartbeat", attempt, progress=7)[0] == 422
    assert played.post("/v1/callbacks/ack", [])[0] == 422
    assert played.post("/v1/callbacks/ack", {}, Content_Type="text/plain")[0] == 415
    assert played.post("/v1/nowhere", {})[0] == 404
    # The schema asks for a failure_class; the server does without.
    assert played.say("result", attempt, status="FAILED")[0] == 200
    assert any("failure_class" in fault for call in played.orchestrator.calls for fault in call.faults)


@pytest.mark.parametrize(
    "body",
    [
        {"service": "other"},
        {"service": "count", "max": -1},
        {"service": "count", "max": True},
        {"service": "count", "wait_seconds": 61},
        {"service": "count", "more": 1},
        [],
    ],
)
def test_pulls_that_the_real_server_refuses_are_refused(played: Played, body: Any) -> None:
    status, problem = played.post("/v1/directives:pull", body, Authorization=f"Bearer {KEY}")
    assert (status, problem["code"]) == (422, "ENVELOPE_INVALID")


def test_a_pull_of_nothing_takes_nothing_and_is_no_pull(played: Played) -> None:
    """A service on a bus shows in this way that it is there."""
    played.publish()
    status, answer = played.post("/v1/directives:pull", {"service": "count", "max": 0}, Authorization=f"Bearer {KEY}")
    assert (status, answer) == (200, {"directives": []})
    assert not played.orchestrator.calls
    assert len(played.pull()) == 1


def test_a_pull_needs_the_key(played: Played) -> None:
    assert played.post("/v1/directives:pull", {"service": "count"})[0] == 401
    assert played.post("/v1/directives:pull", {"service": "count"}, Authorization="Bearer wrong")[0] == 401


def batch(*callbacks: tuple[str, Attempt, dict[str, Any]]) -> dict[str, Any]:
    items = []
    for kind, attempt, fields in callbacks:
        ids = {name: attempt.directive[name] for name in IDS}
        items.append({"type": kind, **ids, "callback_token": attempt.token, **fields})
    return {"callbacks": items}


def test_a_batch_answers_each_callback_for_itself(played: Played) -> None:
    one, other = played.publish(), played.publish()
    other.on("ACK", always(ScriptedAnswer(409, "STALE_ATTEMPT")))
    done = {"status": "SUCCEEDED"}
    status, answer = played.post(
        "/v1/callbacks:batch", batch(("ACK", one, {}), ("ACK", other, {}), ("RESULT", one, done))
    )
    assert status == 200
    outcomes = [one.get("outcome") or one["code"] for one in answer["outcomes"]]
    assert outcomes == ["APPLIED", "STALE_ATTEMPT", "APPLIED"]
    assert played.post("/v1/callbacks:batch", {"callbacks": []})[0] == 422


def test_a_batch_is_unavailable_as_a_whole(played: Played) -> None:
    one, other = played.publish(), played.publish()
    one.on("ACK", in_turn(ScriptedAnswer(503, "UNAVAILABLE")))
    both = batch(("ACK", one, {}), ("ACK", other, {}))
    assert played.post("/v1/callbacks:batch", both)[0] == 503
    assert not other.acked
    assert [one["outcome"] for one in played.post("/v1/callbacks:batch", both)[1]["outcomes"]] == ["APPLIED"] * 2


def test_an_answer_can_be_lost_after_the_callback_was_applied(played: Played) -> None:
    attempt = played.publish()
    attempt.on("ACK", in_turn(ScriptedAnswer(drop=True)))
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        played.say("ack", attempt)
    played.connection.close()
    assert attempt.acked
    assert played.say("ack", attempt)[1]["outcome"] == "DUPLICATE"


def test_bodies_in_chunks_are_read(played: Played) -> None:
    attempt = played.publish()
    body = json.dumps({name: attempt.directive[name] for name in IDS}).encode()
    headers = {"Content-Type": "application/json", "Lucius-Callback-Token": attempt.token}
    pieces = iter([body[:10], body[10:]])
    played.connection.request("POST", "/v1/callbacks/ack", pieces, headers, encode_chunked=True)
    assert played.connection.getresponse().status == 200


def test_a_shut_door_refuses_and_keeps_the_port(played: Played) -> None:
    played.listener.refuse_connections()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", played.listener.port), 5):
        pass
    played.listener.accept_connections()
    played.connection.close()
    played.publish()
    assert len(played.pull()) == 1


def test_a_pull_that_was_cut_takes_no_directive_with_it(played: Played) -> None:
    gone = http.client.HTTPConnection("127.0.0.1", played.listener.port, timeout=SECONDS_MAX)
    body = json.dumps({"service": "count", "max": 1, "wait_seconds": 20})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    gone.request("POST", "/v1/directives:pull", body, headers)
    assert played.orchestrator.wait(lambda: played.orchestrator.pulls_open == 1, SECONDS_MAX)
    gone.close()
    assert played.orchestrator.wait(lambda: played.orchestrator.pulls_open == 0, SECONDS_MAX)
    attempt = played.publish()
    assert played.pull() == [attempt.directive]
    assert len(attempt.handed_at) == 1


def test_a_body_that_breaks_off_is_refused(played: Played) -> None:
    with socket.create_connection(("127.0.0.1", played.listener.port), SECONDS_MAX) as raw:
        raw.sendall(b"POST /v1/callbacks/ack HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert raw.recv(64).startswith(b"HTTP/1.1 400 ")


def test_a_service_cannot_steer_the_reader_s_terminal(tmp_path: Path) -> None:
    process = ServiceProcess([sys.executable, "-c", "print('a\\x1b[31mb')"], {}, tmp_path / "log")
    process.start()
    assert process.wait(SECONDS_MAX) == 0
    assert process.last_lines() == ["a [31mb"]
