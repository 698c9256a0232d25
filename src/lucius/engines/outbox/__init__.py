from lucius.engines.outbox.engine import EngineSettings, OutboxEngine

__all__ = ["EngineSettings", "OutboxEngine"]
