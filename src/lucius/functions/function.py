"""A function of a worker: binds a job's parameters to its arguments, and calls it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from lucius.functions.errors import ParametersInvalid
from lucius.functions.job import Job
from lucius.kit.threads import in_thread

NAMES_MAX = 20
"""How many names a message lists."""

Arguments = dict[str, Any]


class Function:
    def __init__(self, name: str, function: Callable[..., Any], *, quick: bool = False) -> None:
        self.name = name
        self.quick = quick
        self.is_async = inspect.iscoroutinefunction(function)
        self._function = function
        if quick and self.is_async:
            raise ValueError(f"{name} is async; quick functions must be sync and never wait")
        found = inspect.signature(function).parameters.values()
        for one in found:
            if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
                raise ValueError(f"{name}: the parameter {one.name} cannot be passed by name")
        self._job_parameter = _job_parameter(name, function, [one.name for one in found])
        named = [one for one in found if one.kind is not one.VAR_KEYWORD and one.name != self._job_parameter]
        self._takes_any = any(one.kind is one.VAR_KEYWORD for one in found)
        self._names = frozenset(one.name for one in named)
        self._required = frozenset(one.name for one in named if one.default is one.empty)
        self._folded: dict[str, list[str]] = {}
        for one in named:
            self._folded.setdefault(one.name.lower(), []).append(one.name)

    def bind(self, job: Job) -> Arguments:
        """The arguments of the call. Raises `ParametersInvalid`, which names parameters but never their values."""
        given = job.parameters
        arguments = dict(given) if given.keys() <= self._names else self._matched(given)
        if missing := self._required - arguments.keys():
            raise ParametersInvalid(
                f"{self.name} needs {_listed(missing)}, which are not in the job; it has {_listed(given)}"
            )
        if self._job_parameter is not None:
            arguments[self._job_parameter] = job
        return arguments

    def call(self, arguments: Arguments) -> Any:
        """In the event loop itself, for a quick function."""
        return self._function(**arguments)

    async def called(self, arguments: Arguments) -> Any:
        if self.quick:
            return self._function(**arguments)
        if self.is_async:
            return await self._function(**arguments)
        return await in_thread(lambda: self._function(**arguments), self.name)

    def _matched(self, given: Mapping[str, Any]) -> Arguments:
        """Exact names match first; another letter case matches if it is unambiguous."""
        arguments = {name: value for name, value in given.items() if name in self._names}
        unknown: list[str] = []
        for name, value in given.items():
            if name in self._names:
                continue
            meant = [one for one in self._folded.get(name.lower(), ()) if one not in arguments]
            if len(meant) == 1:
                arguments[meant[0]] = value
            elif self._takes_any and name != self._job_parameter and name.lower() not in self._folded:
                arguments[name] = value
            else:
                unknown.append(name)
        if unknown:
            raise ParametersInvalid(f"{self.name} has no parameter {_listed(unknown)}; it has {_listed(self._names)}")
        return arguments


def _listed(names: typing.Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - NAMES_MAX} more" if len(found) > NAMES_MAX else ""
    return ", ".join(name[:100] for name in found[:NAMES_MAX]) + more if found else "none"


def _job_parameter(name: str, function: Callable[..., Any], parameters: list[str]) -> str | None:
    """The parameter annotated `Job` (or `Job | None`), else the one named `job`."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # The annotation cannot be evaluated at run time: compare it as text.
        hints = dict(getattr(function, "__annotations__", {}))
    annotated = [one for one in parameters if _is_job(hints.get(one))]
    if len(annotated) > 1:
        raise ValueError(f"{name} takes the job more than once: as {' and as '.join(annotated)}")
    return annotated[0] if annotated else "job" if "job" in parameters else None


def _is_job(hint: Any) -> bool:
    if isinstance(hint, str):
        return any(part.strip().rpartition(".")[2] == "Job" for part in hint.split("|"))
    return hint is Job or Job in typing.get_args(hint)
