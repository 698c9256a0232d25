"""The bus on Azure Service Bus. Needs the extra `servicebus`."""

from lucius.buses.servicebus.bus import ServiceBus
from lucius.buses.servicebus.options import ServiceBusOptions

__all__ = ["ServiceBus", "ServiceBusOptions"]
