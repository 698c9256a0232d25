"""Settings from the environment that override a registry's global settings."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from lucius.domain.protocol import PolicyOverride
from lucius.ports.registry import Globals
from lucius.registries.limits import checked_policy, count_faults, seconds_faults
from lucius.registries.problems import Problem, RegistryError


class Overrides(Struct, frozen=True, kw_only=True):
    """None means what the registry says."""

    policy: PolicyOverride = PolicyOverride()
    max_inflight: int | None = None
    max_inflight_per_tenant: int | None = None
    job_deadline_seconds: float | None = None
    unknown_tenants_allowed: bool | None = None

    def check(self) -> None:
        """The same limits apply to the environment as to documents. Raises `RegistryError`."""
        values, policy = _stated(self), _stated(self.policy)
        faults = checked_policy(policy, "") + seconds_faults(values, "job_deadline_seconds", "")
        for name in ("max_inflight", "max_inflight_per_tenant"):
            faults += count_faults(values, name, "")
        if faults:
            raise RegistryError(tuple(Problem(f"LUCIUS_{place[1:].upper()}", 1, detail) for place, detail in faults))

    def applied_to(self, settings: Globals) -> Globals:
        policy = structs.replace(settings.policy, **_stated(self.policy))
        return structs.replace(settings, **{**_stated(self), "policy": policy})


def _stated(of: Struct) -> dict[str, Any]:
    return {name: value for name, value in structs.asdict(of).items() if value is not None}
