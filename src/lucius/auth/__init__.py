"""Authentication: API keys and bearer tokens, both turned into a principal."""

from lucius.auth.authenticator import Authenticator
from lucius.auth.principal import ROLES, Principal

__all__ = ["ROLES", "Authenticator", "Principal"]
