"""Engines: what drives jobs forward. All pass `lucius.testing.engine_suite`."""
