"""The console: pages for people, on the same application and use cases as the API. See decision 0042."""

from lucius.console.routes import console_routes

__all__ = ["console_routes"]
