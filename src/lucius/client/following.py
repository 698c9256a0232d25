"""A job's events as a live stream, without the I/O: builds the call, parses the bytes, decides when to reconnect."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

from lucius.client.backoff import backoff_seconds
from lucius.client.call import Call, Json
from lucius.client.errors import AnswerInvalid, ClientError, Forbidden, NotFound, Refused, Unauthenticated, WaitTimedOut
from lucius.client.retrying import PATIENCE_SECONDS, WAITS_SATURATED, may_pass
from lucius.client.statuses import JOB_TERMINAL

QUIET_SECONDS_MAX = 45.0
"""The server writes to every stream at least every 15 seconds."""
EVENT_BYTES_MAX = 4 * 1024 * 1024
_REFUSALS: dict[str, type[Refused]] = {
    "UNAUTHENTICATED": Unauthenticated,
    "FORBIDDEN": Forbidden,
    "JOB_NOT_FOUND": NotFound,
}


class Following:
    """`has_ended` is true once the job has ended and its last event was returned. Raises `WaitTimedOut` after
    `timeout_seconds`."""

    def __init__(
        self, job_id: str, *, after: int = 0, timeout_seconds: float, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._job_id = job_id
        self._seen = after
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        self._patience_seconds = patience_seconds
        self._failing_since: float | None = None
        self._failures = 0
        self._buffer = b""
        self.has_ended = False
        self.pause_seconds = 0.0

    def call(self) -> Call:
        """The call that opens the stream after the last event seen."""
        self._check_deadline()
        self._buffer = b""
        left = self._deadline - time.monotonic()
        return Call(
            "GET",
            f"/v1/jobs/{quote(self._job_id, safe='')}/events",
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(self._seen)},
            is_repeatable=True,
            answer_seconds_max=min(QUIET_SECONDS_MAX, max(left, 0.001)),
        )

    def feed(self, chunk: bytes) -> Iterator[Json]:
        """The events that these bytes complete."""
        self._failing_since, self._failures = None, 0
        self._buffer += chunk.replace(b"\r\n", b"\n")
        if len(self._buffer) > EVENT_BYTES_MAX:
            raise AnswerInvalid(f"an event of the stream is larger than {EVENT_BYTES_MAX} bytes")
        *blocks, self._buffer = self._buffer.split(b"\n\n")
        for block in blocks:
            event = self._read(block.decode("utf-8", "replace"))
            if event is not None:
                yield event
        self._check_deadline()

    def broke_off(self) -> None:
        """Call when the stream ends: the job has ended, or the server closed the stream, as it does now and then."""
        if not self.has_ended:
            self._plan_pause(None)

    def failed(self, error: ClientError) -> None:
        """Call when the stream fails. Raises the error unless a reconnect may help."""
        self._check_deadline()
        if not may_pass(error) and error.code != WAITS_SATURATED:
            raise error
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since > self._patience_seconds:
            raise error
        self._plan_pause(error.retry_after_seconds)

    def _plan_pause(self, retry_after_seconds: float | None) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        self.pause_seconds = min(backoff_seconds(self._failures, retry_after_seconds), left)
        self._failures += 1

    def _read(self, block: str) -> Json | None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        kind, data = fields.get("event", ""), fields.get("data", "")
        if kind == "problem":
            raise _REFUSALS.get(data, Refused)(data or "REFUSED", "the server ended the stream", may_have_arrived=False)
        if not data:
            return None
        event = _json_object(data)
        if kind == "end":
            # A server that stops also ends its streams; the job then continues.
            self.has_ended = event.get("status") in JOB_TERMINAL
            self.pause_seconds = 0.0
            return None
        number = fields.get("id", "")
        self._seen = int(number) if number.isascii() and number.isdigit() else self._seen
        return event

    def _check_deadline(self) -> None:
        if not self.has_ended and time.monotonic() >= self._deadline:
            message = f"job {self._job_id} has not ended after {self._timeout_seconds:g} s; it continues"
            raise WaitTimedOut(message, {"jobId": self._job_id})


def _json_object(data: str) -> Json:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AnswerInvalid("an event of the stream is not JSON; is it a LUCIUS server?") from error
    if not isinstance(event, dict):
        raise AnswerInvalid("an event of the stream is not a JSON object; is it a LUCIUS server?")
    return event
