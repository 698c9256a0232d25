"""Interfaces of the adapters. Each docstring is a guarantee, which the suites in `lucius.testing` check."""
