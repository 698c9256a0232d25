"""Replaces itself with another program, which the kernel signals when the process that started it is gone.

Run as a script: `bound.py SIGNAL PARENT_PID USER PROGRAM ARGUMENT…`; an empty USER means the current one. The signal is
requested here and not between fork and exec of the parent, which may have threads. Only Linux supports it.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    number, parent, user, *command = sys.argv[1:]
    if user:
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)  # After setuid, which would undo it.
    if os.getppid() != int(parent):
        sys.exit("the process that started this one is already gone")
    os.execv(command[0], command)  # noqa: S606 - the parent's own command line


if __name__ == "__main__":
    main()
