"""Logs, metrics and traces, all attached to the observer port."""

from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.logs import configure_logs
from lucius.telemetry.metrics import METRICS_CONTENT_TYPE, MetricsObserver
from lucius.telemetry.traces import Traces, open_traces

__all__ = ["METRICS_CONTENT_TYPE", "LogObserver", "MetricsObserver", "Traces", "configure_logs", "open_traces"]
