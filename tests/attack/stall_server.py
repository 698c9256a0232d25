"""`lucius` with a probe in its event loop: `python stall_server.py FILE up …` keeps its longest stall in FILE.

A stall is the processor time that the loop's thread spends before it comes round again, so that other programs on the
machine do not count. `longest_stall_ms` reads it, and `forget_stall` begins anew.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path

INTERVAL_SECONDS = 0.005
_SLOT = struct.Struct("d")


def longest_stall_ms(path: Path) -> float:
    (seconds,) = _SLOT.unpack(path.read_bytes())
    return float(seconds) * 1000


def forget_stall(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(_SLOT.pack(0.0))


def watch(loop: asyncio.AbstractEventLoop, slot: mmap.mmap) -> None:
    began = time.thread_time()

    def tick() -> None:
        nonlocal began
        stall = time.thread_time() - began
        if stall > _SLOT.unpack_from(slot)[0]:
            _SLOT.pack_into(slot, 0, stall)
        began = time.thread_time()
        loop.call_later(INTERVAL_SECONDS, tick)

    loop.call_later(INTERVAL_SECONDS, tick)


def main() -> None:
    import uvloop

    from lucius.cli.main import main as lucius

    path = Path(sys.argv.pop(1))
    with path.open("r+b") as file:
        slot = mmap.mmap(file.fileno(), _SLOT.size)
    new_event_loop = uvloop.new_event_loop

    def watched() -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        watch(loop, slot)
        return loop

    uvloop.new_event_loop = watched
    lucius()


if __name__ == "__main__":
    main()
