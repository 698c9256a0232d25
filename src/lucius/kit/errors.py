from __future__ import annotations


class ServiceUnusable(Exception):
    """The service or worker cannot start with its configuration; the message says what to change."""
