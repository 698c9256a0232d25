"""What jobs wait for, in words."""

from __future__ import annotations

CAUSES = {
    "START": ("its start time", "may not begin yet"),
    "BUS": ("the bus", "the bus has not taken its directive"),
    "TENANT_CAP": ("its tenant's turn", "the tenant has as many directives out as it may"),
    "ACK": ("a service to pick it up", "on a lane, nobody has taken it"),
    "RESULT": ("a service at work", "a service has it and has not answered"),
    "RETRY": ("the next try", "failed, and is tried again"),
    "RESUME": ("somebody to resume it", "paused"),
}
"""By cause: what is waited for, and what that means."""
