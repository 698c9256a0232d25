"""Which form of a test runs: a short one in `make test`, the long one in `make test-long`."""

from __future__ import annotations

import os

IS_LONG = os.environ.get("LUCIUS_TEST_LONG") == "1"


def sized(short: int, long: int) -> int:
    return long if IS_LONG else short
