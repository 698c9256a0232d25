"""A program on a terminal of 100 × 30, as a person sees it: what it shows, and keys pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROWS, COLUMNS = 30, 100
SHOW_SECONDS_MAX = 30.0
END_SECONDS_MAX = 20.0
CTRL_C = b"\x03"

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """In a `with` block the program is gone at the end."""

    def __init__(self, *words: str | Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._words: Sequence[str | Path] = words
        self._folder = folder
        self._environment = {**environment, "TERM": "xterm-256color"}
        self._shown: list[bytes] = []

    def __enter__(self) -> Terminal:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            self._words,
            cwd=self._folder,
            env=self._environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # Its own session with this terminal, so that Ctrl-C reaches it as it would a person's program.
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        # Somebody must read all the time, or the program stands still once the terminal's buffer is full.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_SECONDS_MAX)
        self._reader.join(END_SECONDS_MAX)
        os.close(self._ours)

    @property
    def shown(self) -> str:
        """Everything shown so far, without what steers the terminal."""
        return _CONTROL.sub("", b"".join(self._shown).decode(errors="replace"))

    def wait_for(self, pattern: str, seconds: float = SHOW_SECONDS_MAX) -> re.Match[str]:
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < until, f"{pattern!r} was not shown in time:\n{self.shown}"
            assert self._reader.is_alive() or re.search(pattern, self.shown), f"it ended:\n{self.shown}"
            time.sleep(0.02)
        return found

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Wait until the program has ended and everything is shown; its exit code."""
        code = self.process.wait(END_SECONDS_MAX)
        self._reader.join(END_SECONDS_MAX)
        return code

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._ours, 65_536)
            except OSError:  # Linux says EIO once the other end is closed.
                return
            if not read:
                return
            self._shown.append(read)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
