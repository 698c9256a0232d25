"""What `lucius bus` does with the topics and subscriptions of a broker on which serving creates nothing."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.bootstrap import bus_differences, bus_topics, servicebus_options
from lucius.roles.running import run
from lucius.settings import Settings, SettingsError


def bus_print(settings: Settings, form: str, worker_ids: Sequence[str]) -> str:
    async def work() -> str:
        from lucius.buses.servicebus import printing

        made = await bus_topics(settings, worker_ids)
        return printing.as_bicep(made) if form == "bicep" else printing.as_json(made)

    return run(work(), settings)


def bus_provision(settings: Settings, worker_ids: Sequence[str]) -> list[str]:
    """A line for each thing that was created or changed."""

    async def work() -> list[str]:
        options = servicebus_options(_on_servicebus(settings))
        from lucius.buses.servicebus.provisioning import administration

        async with administration(options) as provisioner:
            return await provisioner.provision(await bus_topics(settings, worker_ids))

    return run(work(), settings)


def bus_check(settings: Settings, worker_ids: Sequence[str]) -> list[str]:
    """A line for each difference, and for whatever else keeps this installation from using the bus."""

    return run(bus_differences(_on_servicebus(settings), worker_ids), settings)


def _on_servicebus(settings: Settings) -> Settings:
    if settings.bus != "servicebus":
        raise SettingsError(
            f"LUCIUS_BUS={settings.bus}: only on servicebus are topics and subscriptions created by hand; set"
            " LUCIUS_BUS=servicebus"
        )
    return settings
