"""Roles: what one process does, from start to a graceful stop."""

from lucius.roles.parts import run_api, run_bus_worker, run_reconciler, run_runbooks, run_scheduler, run_worker
from lucius.roles.upkeep import Compared, db_upgrade, db_verify, prune, temporal_drift, temporal_heal
from lucius.roles.whole import Sample, run_profile, run_up

__all__ = [
    "Compared",
    "Sample",
    "db_upgrade",
    "db_verify",
    "prune",
    "run_api",
    "run_bus_worker",
    "run_profile",
    "run_reconciler",
    "run_runbooks",
    "run_scheduler",
    "run_up",
    "run_worker",
    "temporal_drift",
    "temporal_heal",
]
