"""The clock of the real world."""

from __future__ import annotations

import os
import random
import time

from lucius.domain.time import Instant


class SystemClock:
    def now(self) -> Instant:
        return time.time_ns() // 1_000_000

    def job_id(self) -> str:
        """48 bits of milliseconds, version 7, 74 random bits."""
        raw = bytearray(self.now().to_bytes(6, "big") + os.urandom(10))
        raw[6] = 0x70 | (raw[6] & 0x0F)
        raw[8] = 0x80 | (raw[8] & 0x3F)
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def lease_id(self) -> str:
        return os.urandom(16).hex()

    def jitter(self) -> float:
        return random.random()
