"""Shared by platform services and function workers: settings, signals, threads, health, metrics, the pull loop, and the
spool that sends results. `lucius.platform` and `lucius.functions` are built on it."""
