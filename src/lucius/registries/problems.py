"""What keeps a registry from taking effect."""

from __future__ import annotations

from lucius.ports.registry import Problem

__all__ = ["Problem", "RegistryError"]


class RegistryError(Exception):
    """A registry that cannot take effect."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
