"""One queue by itself, without sockets and with time as an argument: locks, counts, lives, sessions."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from samples import message, text_of

from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.queue import MessageQueue
from lucius.testing.servicebus.refusals import Refusal
from lucius.testing.servicebus.settings import QueueSettings
from lucius.testing.servicebus.stored import Outcome, Stored

LOCK = 30.0


def new_queue(**settings: object) -> MessageQueue:
    dead_letters = MessageQueue("q/$DeadLetterQueue", QueueSettings())
    return MessageQueue("q", QueueSettings(lock_seconds=LOCK, **settings), dead_letters)  # type: ignore[arg-type]


def take(queue: MessageQueue, now: float, session_id: str | None = None) -> tuple[Stored, UUID]:
    stored = queue.take(now, session_id)
    assert stored is not None
    assert stored.token is not None
    return stored, stored.token


def dead(queue: MessageQueue) -> list[Stored]:
    assert queue.dead_letters is not None
    return list(queue.dead_letters)


def reasons(queue: MessageQueue) -> list[str]:
    return [stored.message.application_properties["DeadLetterReason"] for stored in dead(queue)]


def test_messages_come_in_order_and_leave_with_completion() -> None:
    queue = new_queue()
    numbers = [queue.put(message(text), 0) for text in "abc"]
    assert numbers == [1, 2, 3]
    taken = [take(queue, 1) for _ in range(3)]
    assert [text_of(stored.message) for stored, _ in taken] == ["a", "b", "c"]
    assert queue.take(1) is None
    for _, token in taken:
        queue.settle(token, Outcome.COMPLETE, 2)
    assert len(queue) == 0
    assert queue.size_bytes == 0


def test_an_abandoned_message_comes_back_in_its_place_and_is_counted() -> None:
    queue = new_queue()
    for text in "ab":
        queue.put(message(text), 0)
    stored, token = take(queue, 1)
    assert stored.delivery_count == 1
    queue.settle(token, Outcome.ABANDON, 2)
    again, _ = take(queue, 3)
    assert text_of(again.message) == "a"
    assert again.delivery_count == 2


def test_a_released_message_is_not_counted() -> None:
    queue = new_queue(max_delivery_count=1)
    queue.put(message(), 0)
    for _ in range(5):
        _, token = take(queue, 1)
        queue.settle(token, Outcome.RELEASE, 1)
    assert take(queue, 2)[0].delivery_count == 1
    assert dead(queue) == []


def test_a_lock_runs_out_and_settling_then_is_refused() -> None:
    queue = new_queue()
    queue.put(message(), 0)
    _, token = take(queue, 0)
    with pytest.raises(Refusal, match="lock supplied is invalid"):
        queue.settle(token, Outcome.COMPLETE, LOCK)
    queue.advance(LOCK)
    stored, second = take(queue, LOCK)
    assert stored.delivery_count == 2
    with pytest.raises(Refusal):
        queue.settle(token, Outcome.COMPLETE, LOCK)
    queue.settle(second, Outcome.COMPLETE, LOCK + 1)


def test_a_renewed_lock_holds_on_and_a_lost_one_cannot_be_renewed() -> None:
    queue = new_queue()
    queue.put(message(), 0)
    _, token = take(queue, 0)
    assert queue.renew([token], 20) == [20 + LOCK]
    queue.advance(LOCK + 1)
    queue.settle(token, Outcome.COMPLETE, 20 + LOCK - 1)
    with pytest.raises(Refusal) as refused:
        queue.renew([token], 21)
    assert refused.value.condition == "com.microsoft:message-lock-lost"


def test_a_renewed_lock_runs_out_at_its_new_end() -> None:
    queue = new_queue()
    queue.put(message(), 0)
    _, token = take(queue, 0)
    queue.renew([token], 20)
    queue.advance(LOCK)
    assert queue.take(LOCK) is None
    queue.advance(20 + LOCK)
    assert take(queue, 20 + LOCK)[0].delivery_count == 2


def test_too_many_deliveries_end_in_the_dead_letters_with_the_reason() -> None:
    queue = new_queue(max_delivery_count=2)
    queue.put(message(), 0)
    _, token = take(queue, 0)
    queue.settle(token, Outcome.ABANDON, 1)
    take(queue, 1)
    queue.advance(1 + LOCK)
    assert queue.take(40) is None
    assert reasons(queue) == ["MaxDeliveryCountExceeded"]
    assert dead(queue)[0].message.annotations["x-opt-deadletter-source"] == "q"


def test_a_dead_letter_keeps_reason_description_and_changes() -> None:
    queue = new_queue()
    queue.put(message(kept=1), 0)
    stored, token = take(queue, 0)
    changed = stored.message.with_application_properties({"added": 2})
    queue.settle(token, Outcome.DEAD_LETTER, 1, changed, ("poison", "because"))
    properties = dead(queue)[0].message.application_properties
    assert properties == {
        "kept": 1,
        "added": 2,
        "DeadLetterReason": "poison",
        "DeadLetterErrorDescription": "because",
    }


@pytest.mark.parametrize("dead_letters_expired", [True, False])
def test_an_expired_message_is_dead_lettered_or_dropped(dead_letters_expired: bool) -> None:
    queue = new_queue(ttl_seconds=10.0, dead_letters_expired=dead_letters_expired)
    queue.put(message("entity's"), 0)
    queue.put(message("own", ttl_ms=5_000), 0)
    queue.put(message("longer than the entity's", ttl_ms=60_000), 0)
    queue.advance(5)
    assert len(queue) == 2
    queue.advance(10)
    assert len(queue) == 0
    assert reasons(queue) == (["TTLExpiredException"] * 3 if dead_letters_expired else [])


def test_a_locked_message_does_not_expire_until_it_is_given_back() -> None:
    queue = new_queue(ttl_seconds=10.0)
    queue.put(message(), 0)
    _, token = take(queue, 9)
    queue.advance(20)
    assert len(queue) == 1
    queue.settle(token, Outcome.ABANDON, 21)
    assert queue.take(21) is None
    assert len(queue) == 0


def test_nothing_expires_among_dead_letters() -> None:
    queue = new_queue()
    queue.put(message(ttl_ms=1_000), 0)
    queue.settle(take(queue, 0)[1], Outcome.DEAD_LETTER, 0)
    assert queue.dead_letters is not None
    queue.dead_letters.advance(10_000)
    assert queue.dead_letters.take(10_000) is not None


def test_a_deferred_message_is_received_by_its_number_alone() -> None:
    queue = new_queue()
    number = queue.put(message(), 0)
    queue.settle(take(queue, 0)[1], Outcome.DEFER, 1)
    assert queue.take(2) is None
    with pytest.raises(Refusal, match="no such message"):
        queue.receive_deferred([number + 1], 2)
    (stored,) = queue.receive_deferred([number], 2)
    assert stored.token is not None
    assert stored.delivery_count == 2
    queue.settle(stored.token, Outcome.ABANDON, 3)
    assert queue.take(3) is None, "it stays deferred"
    assert len(queue.receive_deferred([number], 4, deletes=True)) == 1
    assert len(queue) == 0


def test_a_scheduled_message_waits_and_then_comes_last_with_a_new_number() -> None:
    queue = new_queue()
    scheduled = queue.put(message("later"), 0, due_at=10)
    queue.put(message("now"), 0)
    assert text_of(take(queue, 1)[0].message) == "now"
    assert queue.take(1) is None
    queue.advance(10)
    stored, _ = take(queue, 10)
    assert text_of(stored.message) == "later"
    assert stored.sequence_number > scheduled
    assert stored.enqueued_at == 10


def test_a_cancelled_schedule_is_gone_and_an_unknown_one_refused() -> None:
    queue = new_queue()
    scheduled, active = queue.put(message(), 0, due_at=10), queue.put(message(), 0)
    for numbers in ([active], [scheduled, 99]):
        with pytest.raises(Refusal):
            queue.cancel_scheduled(numbers)
    queue.cancel_scheduled([scheduled])
    queue.advance(20)
    assert len(queue) == 1


def test_peeking_shows_everything_and_locks_nothing() -> None:
    queue = new_queue()
    for text in "abcd":
        queue.put(message(text), 0)
    queue.put(message("later"), 0, due_at=100)
    take(queue, 1)
    queue.settle(take(queue, 1)[1], Outcome.DEFER, 1)
    assert [text_of(stored.message) for stored in queue.peek(1, 10, 2)] == ["a", "b", "c", "d", "later"]
    assert [stored.sequence_number for stored in queue.peek(3, 2, 2)] == [3, 4]


def test_receive_and_delete_removes_at_once() -> None:
    queue = new_queue()
    queue.put(message(), 0)
    stored = queue.take(1, deletes=True)
    assert stored is not None
    assert stored.token is None
    assert len(queue) == 0


# --- Sessions --------------------------------------------------------------------------------------------------------


def session_queue() -> MessageQueue:
    queue = new_queue(requires_session=True)
    for session_id, text in (("s1", "a"), ("s2", "b"), ("s1", "c")):
        queue.put(message(text, session_id=session_id), 0)
    return queue


def test_a_session_is_locked_by_one_and_has_its_messages_in_order() -> None:
    queue, owner = session_queue(), object()
    assert queue.next_session(0) == "s1"
    queue.sessions.lock("s1", owner, 0)
    assert queue.next_session(0) == "s2"
    with pytest.raises(Refusal, match="locked by another"):
        queue.sessions.lock("s1", object(), 1)
    assert [text_of(take(queue, 1, "s1")[0].message) for _ in range(2)] == ["a", "c"]
    assert queue.take(1, "s1") is None


def test_a_lost_session_gives_its_messages_back_and_refuses_settling() -> None:
    queue, owner = session_queue(), object()
    queue.sessions.lock("s1", owner, 0)
    _, token = take(queue, 1, "s1")
    assert queue.sessions.renew("s1", 20) == 20 + LOCK
    assert queue.advance(LOCK) == []
    assert queue.advance(20 + LOCK) == [owner]
    with pytest.raises(Refusal):
        queue.settle(token, Outcome.COMPLETE, 20 + LOCK)
    with pytest.raises(Refusal) as refused:
        queue.sessions.renew("s1", 20 + LOCK)
    assert refused.value.condition == "com.microsoft:session-lock-lost"
    assert queue.next_session(51) == "s1"


def test_a_session_keeps_its_state_between_owners() -> None:
    queue, owner = session_queue(), object()
    with pytest.raises(Refusal):
        queue.set_session_state("s1", b"half", 0)
    queue.sessions.lock("s1", owner, 0)
    queue.set_session_state("s1", b"half", 1)
    queue.release_session("s1", owner, 2)
    assert queue.sessions.state("s1") == b"half"
    assert queue.sessions.state("s2") is None
    assert queue.session_ids() == ["s1", "s2"]
    with pytest.raises(Refusal, match="bytes"):
        queue.sessions.set_state("s1", b"x" * 300_000)


def test_releasing_a_session_returns_what_was_not_settled() -> None:
    queue, owner = session_queue(), object()
    queue.sessions.lock("s1", owner, 0)
    take(queue, 1, "s1")
    queue.release_session("s1", object(), 2)
    assert queue.sessions.is_locked("s1", 2), "another cannot release it"
    queue.release_session("s1", owner, 2)
    queue.sessions.lock("s1", owner, 3)
    assert text_of(take(queue, 3, "s1")[0].message) == "a"


def test_losing_every_lock_at_once() -> None:
    queue, owner = session_queue(), object()
    queue.sessions.lock("s1", owner, 0)
    take(queue, 1, "s1")
    assert queue.lose_locks(2) == [owner]
    plain = new_queue()
    plain.put(message(), 0)
    _, token = take(plain, 0)
    assert plain.lose_locks(1) == []
    with pytest.raises(Refusal):
        plain.settle(token, Outcome.COMPLETE, 1)
    assert take(plain, 1)[0].delivery_count == 2


# --- Any order of events ---------------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: a message is in one place, and none is lost or made up."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.queue = new_queue(max_delivery_count=3, ttl_seconds=200.0, dead_letters_expired=True)
        self.sent = 0
        self.completed: set[str] = set()

    @rule(due=st.none() | st.floats(0.1, 100))
    def send(self, due: float | None) -> None:
        self.sent += 1
        self.queue.put(message(str(self.sent)), self.now, None if due is None else self.now + due)

    @rule(target=tokens)
    def receive(self) -> UUID:
        stored = self.queue.take(self.now)
        return uuid4() if stored is None or stored.token is None else stored.token

    @rule(token=consumes(tokens), outcome=st.sampled_from(list(Outcome)))
    def settle(self, token: UUID, outcome: Outcome) -> None:
        stored = self.queue.locked(token)
        try:
            self.queue.settle(token, outcome, self.now)
        except Refusal:
            return
        assert stored is not None
        if outcome is Outcome.COMPLETE:
            assert text_of(stored.message) not in self.completed, "completed twice"
            self.completed.add(text_of(stored.message))

    @rule(token=tokens)
    def renew(self, token: UUID) -> None:
        held = self.queue.locked(token)
        try:
            self.queue.renew([token], self.now)
        except Refusal:
            assert held is None or (held.locked_until or 0) <= self.now

    @rule(seconds=st.floats(0.1, 60))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.advance(self.now)

    @precondition(lambda self: self.sent)
    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        def texts(found: list[Stored]) -> list[str]:
            return [text_of(stored.message) for stored in found]

        everywhere = [*texts(list(self.queue)), *texts(dead(self.queue)), *self.completed]
        assert sorted(everywhere, key=int) == [str(number) for number in range(1, self.sent + 1)]
        assert self.queue.size_bytes == sum(stored.size for stored in self.queue)


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_a_message_survives_parsing_and_encoding() -> None:
    given = message("body", ttl_ms=5_000, message_id="m", session_id="s", subject="t", answer=42)
    parsed = Message.parse(given.encoded(3, {}))
    assert parsed == given
    assert parsed.size == given.size
