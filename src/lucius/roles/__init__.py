"""Roles: what one process does, from start to a graceful stop."""

from lucius.roles.all_in_one import Sample, run_profile, run_up
from lucius.roles.bus import bus_check, bus_print, bus_provision
from lucius.roles.doctor import examine
from lucius.roles.ledgers import db_copy
from lucius.roles.protocols import check_protocol, publish_in_folder, publish_in_store
from lucius.roles.registry import list_pushes, plan_folder_pull, plan_folder_push, pull_files, push_planned
from lucius.roles.single_role import (
    run_api,
    run_bus_service,
    run_bus_worker,
    run_reconciler,
    run_runbooks,
    run_scheduler,
    run_worker,
)
from lucius.roles.tables import db_abandon, db_backup, db_compact, db_contract, db_restore, db_upgrade, db_verify
from lucius.roles.upkeep import Compared, prune, temporal_drift, temporal_heal

__all__ = [
    "Compared",
    "Sample",
    "bus_check",
    "bus_print",
    "bus_provision",
    "check_protocol",
    "db_abandon",
    "db_backup",
    "db_compact",
    "db_contract",
    "db_copy",
    "db_restore",
    "db_upgrade",
    "db_verify",
    "examine",
    "list_pushes",
    "plan_folder_pull",
    "plan_folder_push",
    "prune",
    "publish_in_folder",
    "publish_in_store",
    "pull_files",
    "push_planned",
    "run_api",
    "run_bus_service",
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
