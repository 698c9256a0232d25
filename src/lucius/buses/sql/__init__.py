from lucius.buses.sql.bus import SqlBus
from lucius.buses.sql.journaled import JournaledBus

__all__ = ["JournaledBus", "SqlBus"]
