"""How a batch ended. The contract's `status` knows only `completed` and `failed`; the verdict tells more apart."""

from __future__ import annotations

from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import BATCH_ENDED
from lucius.runbooks.core.states import COMPLETED as STATUS_COMPLETED

COMPLETED = "completed"
"""Every member still in the batch succeeded."""
WITH_FAILURES = "completed_with_failures"
"""It went to its end, and some members succeeded."""
CANCELLED = "cancelled"
FAILED = "failed"
"""Init failed, it was never completely created, or no member succeeded."""
VERDICTS = (COMPLETED, WITH_FAILURES, CANCELLED, FAILED)


def verdict(batch: Batch, has_begun: bool, active: int, unsuccessful: int) -> str | None:
    """None while it is open. `has_begun`: its init succeeded and its phases ran. `unsuccessful`: active members with a
    step that did not succeed."""
    if batch.status not in BATCH_ENDED:
        return None
    if batch.cancelled_at is not None:
        return CANCELLED
    if batch.status == STATUS_COMPLETED:
        return COMPLETED
    if not has_begun:
        return FAILED
    if not unsuccessful:
        return COMPLETED
    return WITH_FAILURES if unsuccessful < active else FAILED
