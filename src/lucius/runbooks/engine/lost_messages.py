"""Rebuilds the events of lost messages from the tables.

A message can be lost: dead-lettered after ten deliveries to orchestrators that crashed, or lost with its broker. Each
of the five kinds leaves a trace in the tables when it is sent and another when it is handled. If the second is missing
after a while, its event is rebuilt from the rows. Handling an event twice changes nothing.
"""

from __future__ import annotations

from lucius.domain.time import Instant
from lucius.ports.database import Script
from lucius.runbooks.core.messages import BATCH_INIT, MEMBER_ADDED, MEMBER_REMOVED, PHASE_DUE, POLL_CHECK, Event
from lucius.runbooks.store import batches, executions, members, phases

FOUND_MAX = 500
"""Events of each kind per scan."""


def find(before: Instant) -> Script[list[Event]]:
    """Events of messages that were sent before this time and never handled."""
    found = [Event(BATCH_INIT, batch_id) for batch_id in (yield from batches.init_not_begun(before, FOUND_MAX))]
    for kind, look in (
        (PHASE_DUE, phases.not_handled),
        (MEMBER_ADDED, members.add_unhandled),
        (MEMBER_REMOVED, members.remove_unhandled),
    ):
        found += [Event(kind, batch_id, subject) for batch_id, subject in (yield from look(before, FOUND_MAX))]
    for batch_id, subject, of, number in (yield from executions.polls_unhandled(before, FOUND_MAX)):
        found.append(Event(POLL_CHECK, batch_id, subject, of, number))
    return found
