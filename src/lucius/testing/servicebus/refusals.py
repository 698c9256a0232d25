"""What Service Bus answers when it does not do what it was asked: a condition, a status and a sentence."""

from __future__ import annotations


class Refusal(Exception):
    def __init__(self, condition: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
        self.status = status


def message_lock_lost() -> Refusal:
    return Refusal(
        "com.microsoft:message-lock-lost",
        "The lock supplied is invalid. Either it expired, or the message has already been removed from the queue.",
        410,
    )


def session_lock_lost(session_id: str) -> Refusal:
    return Refusal("com.microsoft:session-lock-lost", f"The lock on session '{session_id}' is not held any more.", 410)


def session_cannot_be_locked(session_id: str) -> Refusal:
    return Refusal(
        "com.microsoft:session-cannot-be-locked", f"Session '{session_id}' is locked by another receiver.", 410
    )


def no_session_in_time() -> Refusal:
    return Refusal("com.microsoft:timeout", "No session with messages became available in time.", 408)


def message_not_found(number: int) -> Refusal:
    return Refusal("com.microsoft:message-not-found", f"There is no such message with the number {number}.", 404)


def entity_not_found(path: str) -> Refusal:
    return Refusal("amqp:not-found", f"The messaging entity '{path}' could not be found.", 404)


def entity_exists(path: str) -> Refusal:
    return Refusal("com.microsoft:entity-already-exists", f"The messaging entity '{path}' exists already.", 409)


def argument_error(description: str) -> Refusal:
    return Refusal("com.microsoft:argument-error", description, 400)


def not_allowed(description: str) -> Refusal:
    return Refusal("amqp:not-allowed", description, 400)


def not_implemented(description: str) -> Refusal:
    return Refusal("amqp:not-implemented", description, 501)


def entity_full(path: str, bytes_max: int) -> Refusal:
    return Refusal(
        "amqp:resource-limit-exceeded",
        f"The messaging entity '{path}' holds its maximum of {bytes_max} bytes. Receive or remove messages first.",
        403,
    )


def too_large(size: int, bytes_max: int) -> Refusal:
    return Refusal(
        "amqp:link:message-size-exceeded", f"The message has {size} bytes; at most {bytes_max} are allowed.", 400
    )


def unauthorized(description: str) -> Refusal:
    return Refusal("amqp:unauthorized-access", description, 401)


def busy() -> Refusal:
    return Refusal(
        "com.microsoft:server-busy", "The server is busy. Wait for 10 seconds, then repeat the operation.", 503
    )
