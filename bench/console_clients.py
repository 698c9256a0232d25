"""Consoles as browsers open them: `python -m bench.console_clients --port P --consoles N [--reads]`.

Each signs in, opens the overview and its stream. With `--reads` it also asks for the pieces that follow what changed,
all in one request, as the script of the page does. Prints `open` when all streams are, and what it saw when it is told
to end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
from collections import Counter

import aiohttp

OPEN_SECONDS_MAX = 60.0
STREAM = re.compile(r'hx-sse:connect="([^"]+)"')
PIECE = re.compile(r'data-follows="([^"]*)" hx-get="([^"]+)"')


async def run(port: int, consoles: int, reads: bool) -> Counter[str]:
    seen: Counter[str] = Counter()
    opened, stop = asyncio.Semaphore(0), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = [asyncio.create_task(watch(f"http://127.0.0.1:{port}", reads, seen, opened)) for _ in range(consoles)]
    async with asyncio.timeout(OPEN_SECONDS_MAX):
        for _ in range(consoles):
            await opened.acquire()
    print("open", flush=True)
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in done - {stopping}:
        task.result()
        raise RuntimeError("a stream ended by itself")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def watch(url: str, reads: bool, seen: Counter[str], opened: asyncio.Semaphore) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=OPEN_SECONDS_MAX)
    async with aiohttp.ClientSession(url, cookie_jar=jar, timeout=timeout, raise_for_status=True) as session:
        async with session.post("/console/sign-in", data={"key": os.environ["BENCH_API_KEY"]}) as answer:
            page = await answer.text()
        stream = STREAM.search(page)
        assert stream is not None, page[:500]
        pieces = [(set(names.split()), address.replace("&amp;", "&")) for names, address in PIECE.findall(page)]
        async with session.get(stream[1].replace("&amp;", "&")) as lines:
            opened.release()
            async for line in lines.content:
                if not line.startswith(b"data:"):
                    continue
                seen["events"] += 1
                changed = set(line.decode().removeprefix("data:").split())
                due = [address for names, address in pieces if reads and names & changed]
                if due:
                    others = "".join(f"&piece={address.rpartition('piece=')[2]}" for address in due[1:])
                    async with session.get(due[0] + others, headers={"HX-Request": "true"}) as answer:
                        await answer.read()
                    seen["pieces"] += len(due)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console_clients", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--consoles", type=int, default=100)
    parser.add_argument("--reads", action="store_true")
    options = parser.parse_args()
    seen = asyncio.run(run(options.port, options.consoles, options.reads))
    print(f"events {seen['events']} pieces {seen['pieces']}", flush=True)


if __name__ == "__main__":
    main()
