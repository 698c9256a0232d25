"""The settings of the engines, and the engine on Temporal, which is an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucius.bootstrap.tables_ledger import is_on_tables
from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.outbox import EngineSettings
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.settings import Settings, SettingsError
from lucius.telemetry.traces import Traces
from lucius.warm_up import warm_up

if TYPE_CHECKING:
    from lucius.engines.temporal.settings import TemporalSettings

TURN_INPUTS_ON_TABLES_MAX = 64
"""Each is several requests, and all callers of a turn that takes longer than eight seconds are told to ask again: if
turns were as large as the rush, they would ask for ever."""


def engine_settings(settings: Settings, reconciles: bool) -> EngineSettings:
    shared = {name: getattr(settings, name) for name in EngineSettings.__struct_fields__ if hasattr(settings, name)}
    if is_on_tables(settings):
        shared["turn_inputs_max"] = TURN_INPUTS_ON_TABLES_MAX
    return EngineSettings(**shared, reconciles=reconciles)


def open_temporal_engine(
    settings: Settings,
    ledger: Ledger,
    bus: Bus,
    clock: Clock,
    signer: TokenSigner,
    urls: CallbackUrls,
    observer: Observer,
    traces: Traces,
    works: bool,
    reconciles: bool,
    elsewhere: Engine,
) -> Engine:
    try:
        from lucius.engines.temporal.client import connect
        from lucius.engines.temporal.engine import TemporalEngine
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("temporalio"):
            raise
        raise SettingsError(
            "LUCIUS_ENGINE=temporal needs the extra `temporal`: pip install '.[temporal]' in a clone of LUCIUS"
        ) from error
    warm_up()  # That import added types, which the threads of a worker decode.
    options = temporal_settings(settings)
    return TemporalEngine(
        lambda: connect(options, traces.temporal_interceptors()), ledger, bus, clock, signer, urls, observer, options,
        traces.trace, works=works, reconciles=reconciles, elsewhere=elsewhere,
    )  # fmt: skip


def temporal_settings(settings: Settings) -> TemporalSettings:
    from lucius.engines.temporal.settings import TemporalSettings

    names = TemporalSettings.__struct_fields__
    given = {name: getattr(settings, f"temporal_{name}") for name in names if hasattr(settings, f"temporal_{name}")}
    names = ("publish_timeout_seconds", "stop_seconds", "tenant_unacknowledged_max")
    shared = {name: getattr(settings, name) for name in names}
    return TemporalSettings(**given, **shared)
