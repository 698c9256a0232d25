"""`python -m bench.runbook_worker`: a function worker whose functions do nothing, over HTTP or on the bus itself."""

from __future__ import annotations

import argparse
import os

from lucius.functions import FunctionWorker

WORKER_ID = "bench"
STEPS = 5

worker = FunctionWorker(WORKER_ID)


@worker.function("Do-Nothing", quick=True)
def do_nothing(Upn: str, Batch: int) -> dict[str, bool]:
    return {"done": True}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.runbook_worker")
    parser.add_argument("--url", help="take jobs over HTTP; without it, from the bus that LUCIUS_LEDGER names")
    given = parser.parse_args()
    if given.url:
        worker.run(url=given.url, api_key=os.environ["BENCH_API_KEY"])
        return
    from lucius.roles import run_bus_worker
    from lucius.settings import read_settings

    run_bus_worker(read_settings(), worker)


if __name__ == "__main__":
    main()
