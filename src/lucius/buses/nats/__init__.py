"""The bus on NATS JetStream. Needs the extra `nats`."""

from lucius.buses.nats.bus import NatsBus
from lucius.buses.nats.options import NatsOptions

__all__ = ["NatsBus", "NatsOptions"]
