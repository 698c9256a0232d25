"""Where the server's time goes, function by function: a run of its own, whose speed counts for nothing.

py-spy, where it is installed, samples every thread from outside; else cProfile, which sees the main thread only and
makes calls look dearer than they are.
"""

from __future__ import annotations

import io
import pstats
import shutil
import sys
from collections import Counter
from pathlib import Path

from bench.harness import LUCIUS, HarnessOptions, open_harness
from bench.processes import ROOT, Process, scratch_folder

LINES = 40
RATE = 250


def profile(options: HarnessOptions, disk: Path, *, inflight: int, seconds: float) -> str:
    spy = shutil.which("py-spy", path=f"{LUCIUS.parent}:/usr/local/bin:/usr/bin")
    with scratch_folder("profile", disk) as folder:
        output = folder / "profile"
        if spy is None:
            under = [sys.executable, "-m", "cProfile", "-o", str(output)]
            with open_harness(folder, options, under) as harness:
                harness.load(inflight, 1_000_000, seconds)
            return without_paths(calls(output))
        with open_harness(folder, options) as harness:
            harness.load(inflight, 500, seconds)
            what = (
                "--pid",
                str(harness.server.pid),
                "--duration",
                f"{seconds:.0f}",
                "--rate",
                str(RATE),
                "--nonblocking",
            )
            command = [spy, "record", "--format", "raw", "--output", str(output), *what]
            with Process("py-spy", command, folder / "py-spy.log") as sampler:
                harness.load(inflight, 1_000_000, seconds + 2)
                sampler.wait(seconds)
        return without_paths(samples(output))


def calls(output: Path) -> str:
    text = io.StringIO()
    pstats.Stats(str(output), stream=text).sort_stats("tottime").print_stats(LINES)
    return text.getvalue()


def samples(output: Path) -> str:
    """Each line of py-spy's raw format is a stack, its frames joined by `;`, and how often it was seen."""
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for line in output.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        below.update(dict.fromkeys(frames, int(count)))
    return table("own time", own) + "\n" + table("with what it calls", below)


def table(title: str, counted: Counter[str]) -> str:
    total = sum(counted.values()) if title == "own time" else max(counted.values(), default=1)
    rows = [f"{100 * count / max(1, total):6.1f} %  {frame}" for frame, count in counted.most_common(LINES)]
    return "\n".join([title, *rows, ""])


def without_paths(text: str) -> str:
    for path in (sys.prefix, sys.base_prefix, str(ROOT)):
        text = text.replace(f"{path}/", "")
    return text
