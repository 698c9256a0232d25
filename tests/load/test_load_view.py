"""What a run shows while it goes on."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import threading
from pathlib import Path

from rich.console import Console
from tests.crash.processes import LUCIUS, Process, environment, free_port

from lucius.load.account import Account
from lucius.load.plan import LoadPlan
from lucius.load.view import Progress


def an_account() -> Account:
    account = Account()
    for number in range(10):
        account.submit(100.0 + number)
        account.accept(100.0 + number, 100.5 + number)
    for number in range(4):
        account.end("SUCCEEDED" if number else "FAILED_FINAL", 0, 100.0 + number, 102.0 + number)
    account.refuse("RATE_LIMITED")
    return account


def test_line_tells_where_the_run_stands() -> None:
    progress = Progress(LoadPlan(jobs=40), an_account(), 100.0)
    line = progress.line(110.0)
    for told in ("elapsed 10 s", "submitted 10", "in flight 6", "1 FAILED_FINAL", "3 SUCCEEDED", "0 on average"):
        assert told in line
    assert "p50 2000 ms, p95 2000 ms" in line
    assert "refused 1 RATE_LIMITED" in line


def test_rate_now_is_that_of_the_last_seconds() -> None:
    account = Account()
    progress = Progress(LoadPlan(jobs=1_000), account, 0.0)
    for second in range(1, 21):
        for _ in range(100 if second > 10 else 10):
            account.submit(float(second))
            account.accept(0.0, float(second))
            account.end("SUCCEEDED", 0, 0.0, float(second))
        now = progress.rate_now(float(second))
        assert second not in (10, 20) or round(now) == (10 if second == 10 else 100)


def test_progress_is_that_of_the_nearer_bound() -> None:
    account = an_account()
    assert Progress(LoadPlan(jobs=40), account, 100.0).done(110.0) == 0.1
    assert Progress(LoadPlan(jobs=40, seconds=20.0), account, 100.0).done(110.0) == 0.5
    assert Progress(LoadPlan(seconds=5.0), account, 100.0).done(110.0) == 1.0


def test_panel_shows_a_bar_and_the_facts() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=100, highlight=False)
    console.print(Progress(LoadPlan(jobs=40), an_account(), 100.0).panel(110.0))
    shown = stream.getvalue()
    assert "━" in shown
    assert "10%" in shown
    assert "1 RATE_LIMITED" in shown


def test_a_terminal_is_redrawn_in_place(tmp_path: Path) -> None:
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    with Process(*words, settings={"LUCIUS_LOG_LEVEL": "ERROR"}, folder=tmp_path, port=free_port()) as server:
        ours, theirs = pty.openpty()
        drawn: list[bytes] = []
        # Somebody must read all the time, or the program stands still once the terminal's buffer is full.
        reader = threading.Thread(target=read_until_closed, args=(ours, drawn), daemon=True)
        reader.start()
        load = (LUCIUS, "--url", f"http://127.0.0.1:{server.port}", "load", "--seconds", "1.5", "--rate", "20")
        settings = environment({"TERM": "xterm-256color", "COLUMNS": "100"})
        with subprocess.Popen(
            [*load, "--play-services"], env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs
        ) as process:
            os.close(theirs)
            out, _ = process.communicate(timeout=90.0)
        reader.join(10.0)
        os.close(ours)
        shown = b"".join(drawn).decode(errors="replace")
        assert process.returncode == 0, shown
        assert re.search(r"\x1b\[\d*A", shown), "the cursor goes up to draw anew"
        assert "━" in shown
        assert b"SUCCEEDED" in out


def read_until_closed(terminal: int, into: list[bytes]) -> None:
    while True:
        try:
            into.append(os.read(terminal, 65_536))
        except OSError:  # Linux says EIO once the other end is closed.
            return
