from lucius.buses.sql.bus import SqlBus

__all__ = ["SqlBus"]
