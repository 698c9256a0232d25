"""The simulated orchestrator: delivers directives like the bus, and answers callbacks by the ledger's rules.

A case scripts deviating answers. Everything is guarded by one condition, `changed`, which is notified at every call.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucius.contract.exchange import DECIDED, IDS, Attempt, Call, Reply, Script, ScriptedAnswer, ids_of, problem
from lucius.contract.rules import decide, mark, named, pull_fault, refusal, scripted_reply
from lucius.contract.shapes import Shapes, is_refused

BATCH_CALLBACKS_MAX = 500
LOOK_SECONDS = 0.25
"""How often a waiting pull checks that its client is still connected."""
CALLS_BEFORE_BRAKE = 1_000
BRAKE_SECONDS = 0.05
"""A service that calls without a pause is slowed down, so that it cannot overload the machine."""
SCRIPTED = "scripted by the case"
UNKNOWN_FIELDS = {"contract_test_unknown": {"nested": [1, None, {"more": "text"}]}}


@dataclass(eq=False)
class Delivery:
    attempt: Attempt
    is_redelivery: bool = False
    locked_until: float = 0.0


class Orchestrator:
    def __init__(self, service: str, api_key: str, shapes: Shapes) -> None:
        self.service = service
        self.changed = threading.Condition()
        self.calls: list[Call] = []
        self.pull_script: Script | None = None
        self.adds_unknown_fields = False
        self.pulls_open = 0
        self._api_key = api_key
        self._shapes = shapes
        self._attempts: list[Attempt] = []
        self._queue: list[Delivery] = []
        self._epoch = 0
        self._started_at = time.monotonic()

    def now(self) -> float:
        """Seconds since the kit began."""
        return time.monotonic() - self._started_at

    # --- For the stage -----------------------------------------------------------------------------------------------

    def publish(self, attempt: Attempt) -> None:
        with self.changed:
            for earlier in self._attempts:
                if earlier.job_id == attempt.job_id:
                    earlier.superseded = earlier.settled = True
            self._attempts.append(attempt)
            self._queue.append(Delivery(attempt))
            self.changed.notify_all()

    def publish_again(self, attempt: Attempt) -> None:
        """Deliver the same directive once more, as after an expired lock."""
        with self.changed:
            self._queue.append(Delivery(attempt, is_redelivery=True))
            self.changed.notify_all()

    def supersede(self, attempt: Attempt) -> None:
        """The attempt is no longer the step's newest, though no other was delivered yet."""
        with self.changed:
            attempt.superseded = attempt.settled = True

    def wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Whether `holds` became true in time. Call without holding `changed`."""
        with self.changed:
            return self.changed.wait_for(holds, max(0.0, seconds))

    def begin_case(self) -> None:
        """Drop the previous case: its jobs have ended, whatever callbacks still arrive."""
        with self.changed:
            for attempt in self._attempts:
                attempt.closed = attempt.settled = True
                attempt.scripts.clear()
            self._queue.clear()
            self.calls.clear()
            self.pull_script = None
            self.adds_unknown_fields = False
            self.changed.notify_all()

    def release_pulls(self) -> None:
        """Answer waiting pulls with nothing: their client was killed."""
        with self.changed:
            self._epoch += 1
            self.changed.notify_all()

    @property
    def attempts(self) -> list[Attempt]:
        return self._attempts

    # --- Pull --------------------------------------------------------------------------------------------------------

    def pull(self, body: Any, key: str, is_gone: Callable[[], bool]) -> Reply:
        with self.changed:
            call = Call("PULL", self.now(), body if isinstance(body, dict) else {})
            refused = self._refused_pull(body, key)
            if refused is None and body.get("max") == 0:
                return Reply(200, {"directives": []})  # It only shows that it is there.
            self._note(call)
            if refused is not None:
                call.faults.append(str(refused.content["detail"]))
                refused.calls = [call]
                return refused
            scripted = self.pull_script(call) if self.pull_script else None
            if scripted is not None:
                return scripted_reply(scripted, SCRIPTED, [call])
            taken = self._take(float(body.get("wait_seconds", 0)), int(body.get("max", 1)), is_gone)
            content: dict[str, Any] = {"directives": [one.directive for one in taken]}
            content |= UNKNOWN_FIELDS if self.adds_unknown_fields else {}
            return Reply(200, content, calls=[call], taken=taken)

    def _take(self, wait_seconds: float, count_max: int, is_gone: Callable[[], bool]) -> list[Attempt]:
        deadline, epoch = time.monotonic() + wait_seconds, self._epoch
        self.pulls_open += 1
        self.changed.notify_all()
        try:
            while True:
                if self._epoch != epoch or is_gone():
                    return []
                due = [one for one in self._queue if self._is_due(one)][:count_max]
                left = deadline - time.monotonic()
                if due or left <= 0:
                    return [self._hand_out(one) for one in due]
                self.changed.wait(min(left, LOOK_SECONDS))
        finally:
            self.pulls_open -= 1

    def _is_due(self, delivery: Delivery) -> bool:
        return delivery.is_redelivery or (not delivery.attempt.settled and delivery.locked_until <= self.now())

    def _hand_out(self, delivery: Delivery) -> Attempt:
        attempt = delivery.attempt
        delivery.locked_until = self.now() + attempt.lock_seconds
        if delivery.is_redelivery:
            self._queue.remove(delivery)
        code = "handed out again" if attempt.handed_at else "handed out"
        attempt.handed_at.append(self.now())
        self._note(Call("DIRECTIVE", self.now(), attempt=attempt, status=200, code=code))
        return attempt

    def _refused_pull(self, body: Any, key: str) -> Reply | None:
        if not hmac.compare_digest(key.encode("utf-8", "replace"), f"Bearer {self._api_key}".encode()):
            return refusal(401, "UNAUTHENTICATED", "the pull has a key other than LUCIUS_API_KEY, or none")
        detail = pull_fault(body, self.service)
        return refusal(422, "ENVELOPE_INVALID", detail) if detail else None

    # --- Callbacks ---------------------------------------------------------------------------------------------------

    def call_back(self, kind: str, body: Any, token: str) -> Reply:
        with self.changed:
            call, answer = self._record(kind, body, token, is_batched=False)
            return self._reply(call, answer)

    def call_back_batch(self, body: Any) -> Reply:
        items = body.get("callbacks") if isinstance(body, dict) else None
        if not isinstance(items, list) or not 1 <= len(items) <= BATCH_CALLBACKS_MAX:
            return refusal(422, "ENVELOPE_INVALID", f"a batch must have 1 to {BATCH_CALLBACKS_MAX} callbacks")
        with self.changed:
            recorded = [self._record_item(item) for item in items]
            calls = [call for call, _ in recorded]
            whole = next((answer for _, answer in recorded if answer.status >= 429), None)
            if whole is not None:
                # An overloaded server answers for the whole call, and applies nothing of it.
                return scripted_reply(whole, SCRIPTED, calls)
            replies = [self._reply(call, answer) for call, answer in recorded]
            outcomes = [
                one.content if one.status == 200 else {name: one.content[name] for name in ("code", "detail")}
                for one in replies
            ]
            return Reply(
                200,
                {"outcomes": outcomes},
                delay_seconds=max(one.delay_seconds for one in replies),
                trickle_seconds=max(one.trickle_seconds for one in replies),
                drop=any(one.drop for one in replies),
                calls=calls,
            )

    def _record_item(self, item: Any) -> tuple[Call, ScriptedAnswer]:
        body = item if isinstance(item, dict) else {}
        kind = body.get("type")
        known = kind if kind in ("ACK", "HEARTBEAT", "RESULT") else "ACK"
        return self._record(str(known), item, str(body.get("callback_token") or ""), is_batched=True)

    def _record(self, kind: str, body: Any, token: str, is_batched: bool) -> tuple[Call, ScriptedAnswer]:
        """Record a callback, and choose its answer: the scripted one, or by the rules."""
        call = Call(kind, self.now(), body if isinstance(body, dict) else {}, is_batched=is_batched)
        self._note(call)
        call.faults += self._shapes.faults(kind, call.body)
        if is_refused(call.faults):
            call.attempt = self._likely_attempt(call.body, token)
            return call, ScriptedAnswer(422, "ENVELOPE_INVALID")
        attempt, faults = self._authentic(call.body, token)
        call.attempt = attempt or self._likely_attempt(call.body, token)
        call.faults += faults
        if attempt is None:
            return call, ScriptedAnswer(401, "UNAUTHENTICATED")
        script = attempt.scripts.get(kind)
        return call, (script(call) if script else None) or ScriptedAnswer()

    def _authentic(self, body: dict[str, Any], token: str) -> tuple[Attempt | None, list[str]]:
        """The attempt of the callback, if its token was issued for exactly these ids."""
        found = next((one for one in self._attempts if one.ids == ids_of(body)), None)
        if found is not None and hmac.compare_digest(found.token.encode(), token.encode("utf-8", "replace")):
            return found, []
        if found is not None:
            owner = next((one for one in self._attempts if one.token == token), None)
            whose = f"the token of {named(owner)}" if owner else "an unknown token" if token else "no token"
            return None, [f"sent {whose} for {named(found)}"]
        likely = self._likely_attempt(body, token)
        if likely is None:
            return None, [f"names a job that was never delivered: {body.get('jobId')!r}"]
        wrong = [name for name, mine, its in zip(IDS, ids_of(body), likely.ids, strict=True) if mine != its]
        return None, [f"{name} is {body.get(name)!r}, not {likely.directive[name]!r}" for name in wrong]

    def _likely_attempt(self, body: dict[str, Any], token: str) -> Attempt | None:
        """The attempt that a faulty callback is most likely about."""
        by_token = [one for one in self._attempts if one.token == token]
        by_job = [one for one in self._attempts if one.job_id == body.get("jobId")]
        likely = by_job[::-1] or by_token
        return likely[0] if likely else None

    def _reply(self, call: Call, answer: ScriptedAnswer) -> Reply:
        attempt = call.attempt
        if answer.status != 200 or answer.code or attempt is None:
            reply = scripted_reply(answer, "; ".join(call.faults) or SCRIPTED, [call])
        else:
            status, code = decide(call, attempt)
            content: dict[str, Any] = {"outcome": code, "cancel_requested": answer.cancel_requested}
            reply = Reply(status, content if status == 200 else problem(status, code, f"{code} for {named(attempt)}"))
            reply.calls = [call]
        reply.delay_seconds, reply.trickle_seconds = answer.delay_seconds, answer.trickle_seconds
        reply.drop = answer.drop
        if self.adds_unknown_fields:
            reply.content |= UNKNOWN_FIELDS
        if attempt is not None and reply.status in DECIDED:
            attempt.settled = True
        mark(call, reply)
        return reply

    # --- The record --------------------------------------------------------------------------------------------------

    def _note(self, call: Call) -> None:
        self.calls.append(call)
        self.changed.notify_all()

    def brake_seconds(self) -> float:
        return BRAKE_SECONDS if len(self.calls) > CALLS_BEFORE_BRAKE else 0.0

    def answered(self, reply: Reply, was_sent: bool) -> None:
        """The reply was sent, or the client had disconnected."""
        with self.changed:
            for call in reply.calls:
                call.answered_at = self.now()
                call.was_dropped = call.was_dropped or not was_sent
                if call.kind == "PULL":
                    call.status, call.code = reply.status, str(reply.content.get("code") or "")
            if not was_sent:
                for delivery in self._queue:
                    if delivery.attempt in reply.taken:
                        delivery.locked_until = 0.0
            self.changed.notify_all()
