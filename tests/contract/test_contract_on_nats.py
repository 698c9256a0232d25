"""A reference service passes the contract kit on NATS, with callbacks over HTTP and over the bus."""

from __future__ import annotations

import sys

import pytest
from kit import run_kit
from tests.long_form import IS_LONG
from tests.nats_server import NatsServer

from lucius.contract.cases import every_case, is_played

SHORT = ("result-good", "stale-in-work", "crash-in-work")


@pytest.mark.timeout(500)
@pytest.mark.parametrize("callbacks", ["http", "bus"] if IS_LONG else ["bus"])
def test_reference_service_passes_the_contract_on_nats(nats_server: NatsServer, callbacks: str) -> None:
    played = {case.id for case in every_case() if is_played(case, True, callbacks == "bus")}
    chosen = played if IS_LONG else set(SHORT)
    only = [word for name in sorted(chosen) for word in ("--only", name)]
    options = ["--service", "ocr", "--step-type", "OCR", "--output", "json"]
    ran = run_kit(
        *options, "--bus", nats_server.url, "--callbacks", callbacks, *only,
        service=[sys.executable, "-m", "lucius.cli.main", "platform", "ocr"],
    )  # fmt: skip
    assert ran.exit_code == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-1000:]}"
    assert ran.statuses() == dict.fromkeys(chosen, "PASS")


def test_callbacks_on_a_bus_need_directives_from_it() -> None:
    ran = run_kit("--callbacks", "bus")
    assert (ran.exit_code, "--callbacks bus needs --bus" in ran.stderr) == (2, True)
