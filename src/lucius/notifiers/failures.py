"""How a try to send can fail."""

from __future__ import annotations


class NotSent(Exception):
    """The message was not taken; another try may succeed."""

    wait_seconds = 0.0
    """How long the receiver wants to be left alone."""


class Refused(Exception):
    """Trying again would not help."""
