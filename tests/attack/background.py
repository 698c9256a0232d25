"""Programs that leave the processor to others: an attacker has a machine of its own, and a flood that runs on the
server's would be measured along with what it costs the server.

A low priority alone does not do it on Linux with autogroups: there it counts only among the processes of one session,
and PostgreSQL's processes are sessions of their own. So a program in the background is a session too, and the priority
of that session is lowered. It is scheduled as usual even if its parent has real-time priority, as a run may be given on
a machine that is busy with other things (`chrt --rr 1 make attack`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NICE_MAX = 19


def start(steps: int, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program at a priority that many steps of `nice` below that of this process."""
    return subprocess.Popen([sys.executable, __file__, str(steps), *command], start_new_session=True, **options)


def _step_back(steps: int) -> None:
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(steps)
    own = Path("/proc/self/autogroup")
    if own.exists():
        parents = re.search(r"nice (-?\d+)", Path(f"/proc/{os.getppid()}/autogroup").read_text())
        own.write_text(str(min(NICE_MAX, steps + (int(parents[1]) if parents else 0))))


if __name__ == "__main__":
    _step_back(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
