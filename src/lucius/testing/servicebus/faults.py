"""Switches that hurt: what a test turns on to see how a client survives. Each names an entity, or all with None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lucius.testing.servicebus.namespace import path_of
from lucius.testing.servicebus.refusals import Refusal, busy, unauthorized

FOR_EVER = 2**31


class Fault(Enum):
    REFUSE = "refuse"
    """Answers sends, management requests and attaches with a refusal."""
    REFUSE_TOKEN = "refuse token"
    FORGET_SEND = "forget send"
    """Stores the message and does not answer."""
    FORGET_DISPOSITION = "forget disposition"
    """Carries it out and does not answer."""
    LOSE_DISPOSITION = "lose disposition"
    """Neither carries it out nor answers."""
    FORGET_REQUEST = "forget request"
    """A management request is not answered."""
    STALL = "stall"
    """Credit is taken and nothing delivered: the receiver hangs."""


@dataclass(slots=True)
class _Armed:
    fault: Fault
    path: str | None
    times: int
    refusal: Refusal | None = None


class Faults:
    """The counting switches. What happens at once (dropping links, losing locks) is on the server."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []
        self.happened: dict[Fault, int] = dict.fromkeys(Fault, 0)
        self.on_change: Callable[[], None] = lambda: None

    def busy(self, entity: str | None = None, times: int = 1) -> None:
        self.refuse(busy(), entity, times)

    def refuse(self, refusal: Refusal, entity: str | None = None, times: int = 1) -> None:
        """For instance `refusals.entity_full(…)`, or a condition of the test's own."""
        self._arm(Fault.REFUSE, entity, times, refusal)

    def refuse_tokens(self, times: int = FOR_EVER) -> None:
        self._arm(
            Fault.REFUSE_TOKEN, None, times, unauthorized("InvalidSignature: the token has an invalid signature.")
        )

    def forget_sends(self, entity: str | None = None, times: int = 1) -> None:
        self._arm(Fault.FORGET_SEND, entity, times)

    def forget_dispositions(self, entity: str | None = None, times: int = 1, carried_out: bool = True) -> None:
        self._arm(Fault.FORGET_DISPOSITION if carried_out else Fault.LOSE_DISPOSITION, entity, times)

    def forget_requests(self, entity: str | None = None, times: int = 1) -> None:
        self._arm(Fault.FORGET_REQUEST, entity, times)

    def stall(self, entity: str | None = None) -> None:
        """Delivers nothing until `clear`."""
        self._arm(Fault.STALL, entity, FOR_EVER)

    def clear(self) -> None:
        self._armed.clear()
        self.on_change()

    # --- For the server ----------------------------------------------------------------------------------------------

    def strikes(self, fault: Fault, path: str) -> bool:
        """Whether the fault happens now; counts it."""
        return self._take(fault, path) is not None

    def check(self, path: str) -> None:
        """Raises the refusal that is armed for this entity, if any."""
        armed = self._take(Fault.REFUSE, path)
        if armed is not None and armed.refusal is not None:
            raise armed.refusal

    def check_token(self) -> None:
        armed = self._take(Fault.REFUSE_TOKEN, "")
        if armed is not None and armed.refusal is not None:
            raise armed.refusal

    def is_stalled(self, path: str) -> bool:
        return any(armed.fault is Fault.STALL and _covers(armed.path, path) for armed in self._armed)

    def _arm(self, fault: Fault, entity: str | None, times: int, refusal: Refusal | None = None) -> None:
        self._armed.append(_Armed(fault, None if entity is None else path_of(entity), times, refusal))

    def _take(self, fault: Fault, path: str) -> _Armed | None:
        for armed in self._armed:
            if armed.fault is fault and _covers(armed.path, path):
                armed.times -= 1
                if armed.times == 0:
                    self._armed.remove(armed)
                self.happened[fault] += 1
                return armed
        return None


def _covers(armed: str | None, path: str) -> bool:
    """A topic covers its subscriptions, a queue its dead letters."""
    found = path_of(path)
    return armed is None or found == armed or found.startswith(armed + "/")
