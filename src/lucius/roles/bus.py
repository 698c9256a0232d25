"""What `lucius bus` does with the topics and subscriptions of a broker on which serving creates nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lucius.bootstrap import bus_subscriptions, servicebus_options
from lucius.roles.running import run
from lucius.runbooks.core.messages import TOPICS
from lucius.settings import Settings, SettingsError

if TYPE_CHECKING:
    from lucius.buses.servicebus.entities import TopicPlan


def bus_print(settings: Settings, form: str, worker_ids: Sequence[str]) -> str:
    async def work() -> str:
        from lucius.buses.servicebus import printing

        made = _plan(settings, worker_ids)
        return printing.as_bicep(made) if form == "bicep" else printing.as_json(made)

    return run(work(), settings)


def bus_provision(settings: Settings, worker_ids: Sequence[str]) -> list[str]:
    """A line for each thing that was created or changed."""

    async def work() -> list[str]:
        options = servicebus_options(_on_servicebus(settings))
        from lucius.buses.servicebus.provisioning import administration

        async with administration(options) as provisioner:
            return await provisioner.provision(_plan(settings, worker_ids))

    return run(work(), settings)


def bus_check(settings: Settings, worker_ids: Sequence[str]) -> list[str]:
    """A line for each difference, and for whatever else keeps this installation from using the bus."""

    async def work() -> list[str]:
        options = servicebus_options(_on_servicebus(settings))
        from lucius.buses.servicebus.provisioning import administration, faults_of_messages
        from lucius.ports.bus import BusUnavailable

        made = _plan(settings, worker_ids)
        found = []
        try:
            async with administration(options) as provisioner:
                found = await provisioner.differences(made)
        except BusUnavailable as error:
            found = [str(error)]
        return [*found, *await faults_of_messages(options, made)]

    return run(work(), settings)


def _plan(settings: Settings, worker_ids: Sequence[str]) -> list[TopicPlan]:
    try:
        from lucius.buses.servicebus.entities import plan
    except ModuleNotFoundError as error:
        raise SettingsError("this needs the extra `servicebus`: pip install '.[servicebus]'") from error
    return plan(bus_subscriptions(settings, worker_ids), TOPICS)


def _on_servicebus(settings: Settings) -> Settings:
    if settings.bus != "servicebus":
        raise SettingsError(
            f"LUCIUS_BUS={settings.bus}: only on servicebus are topics and subscriptions created by hand; set"
            " LUCIUS_BUS=servicebus"
        )
    return settings
