"""`lucius doctor`: asks every part that is configured, each alone, in parallel and within a deadline. It changes
nothing.

`part` runs the questions, which are the readiness checks of serving where there are any; the other modules ask them:
`stores` ledger, bus and clock; `services` registry, Temporal, workspace, rate gate; `trust` identity, secrets, keys,
data folder.
"""

from lucius.doctor.examination import examine_all
from lucius.doctor.part import Diagnosis

__all__ = ["Diagnosis", "examine_all"]
