"""The outbox engine for tests, with given settings."""

from __future__ import annotations

from collections.abc import Callable

from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer


def outbox_engine(
    settings: EngineSettings, observer: Observer | None = None
) -> Callable[[Ledger, Bus, Clock], OutboxEngine]:
    told = observer or Observer()

    def make(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        return OutboxEngine(ledger, bus, clock, signer, CallbackUrls.under("http://127.0.0.1"), told, settings)

    return make
