"""No-op services on the platform kit, in a process of their own: `python -m bench.kit_services …`, until SIGTERM.

Unlike `bench.services` they are what a team would run: deduplicated, recorded on disk, their RESULTs spooled.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from typing import Any

import uvloop

from bench.services import SERVICES
from lucius.platform import PlatformService, PlatformSettings


def service_of(name: str, eager: bool) -> PlatformService:
    service = PlatformService(name)

    @service.step(name.upper(), eager=eager)
    async def nothing(directive: Any, workspace: Any) -> dict[str, str]:
        return {}

    return service


async def run(settings: PlatformSettings, eager: bool) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await asyncio.gather(*(service_of(name, eager).serve(stop, settings) for name in SERVICES))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kit_services", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--batch-max", type=int, required=True)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    settings = PlatformSettings(
        orchestrator_url=f"http://127.0.0.1:{options.port}",
        api_key=os.environ["BENCH_API_KEY"],
        state=options.state,
        batch_max=options.batch_max,
        concurrency=options.concurrency,
    )
    uvloop.run(run(settings, options.eager))


if __name__ == "__main__":
    main()
