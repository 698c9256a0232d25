"""Buses: what carries directives to services. Each file is a technology; all pass `lucius.testing.bus_suite`."""
