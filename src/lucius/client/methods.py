"""Methods from scripts: each operation is written once, and is a method of both the blocking and the async client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from lucius.client.call import Script
from lucius.client.session import AsyncSession, Session

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


class Blocking:
    def __init__(self, session: Session) -> None:
        self._session = session


class Awaiting:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session


def blocking(script: Callable[P, Script[A]], read: Callable[[A], R]) -> Callable[Concatenate[Blocking, P], R]:
    """A method that runs the script and reads its result."""

    def method(self: Blocking, /, *arguments: P.args, **options: P.kwargs) -> R:
        return read(self._session.run(script(*arguments, **options)))

    _describe(method, script)
    return method


def awaiting(
    script: Callable[P, Script[A]], read: Callable[[A], R]
) -> Callable[Concatenate[Awaiting, P], Coroutine[Any, Any, R]]:
    """Like `blocking`, as a coroutine."""

    async def method(self: Awaiting, /, *arguments: P.args, **options: P.kwargs) -> R:
        return read(await self._session.run(script(*arguments, **options)))

    _describe(method, script)
    return method


def _describe(method: Any, script: Callable[..., Any]) -> None:
    """Makes `help` and editors show the script's documentation and parameters."""
    method.__doc__ = script.__doc__
    method.__name__ = method.__qualname__ = script.__name__
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(script).parameters.values()
    method.__signature__ = inspect.Signature([self, *parameters])
