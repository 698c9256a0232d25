"""A no-op service on the platform kit: `python -m bench.kit_services …`, until SIGTERM.

Unlike `bench.services` it is what a team would run: deduplicated, recorded on disk, its RESULTs spooled.
"""

from __future__ import annotations

import argparse
import logging
import os
from typing import Any

from bench.services import SERVICES
from lucius.kit.process import run_process
from lucius.platform import PlatformService, PlatformSettings


def service_of(name: str, eager: bool) -> PlatformService:
    service = PlatformService(name)

    @service.step(name.upper(), eager=eager)
    async def nothing(directive: Any, workspace: Any) -> dict[str, str]:
        return {}

    return service


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kit_services", description=__doc__)
    parser.add_argument("--service", choices=SERVICES, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    settings = PlatformSettings(
        orchestrator_url=f"http://127.0.0.1:{options.port}",
        api_key=os.environ["BENCH_API_KEY"],
        state=options.state,
        concurrency=options.concurrency,
    )
    service = service_of(options.service, options.eager)
    run_process(service.name, lambda stop: service.serve(stop, settings))


if __name__ == "__main__":
    main()
