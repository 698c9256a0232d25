"""The contract kit: acts as the orchestrator for one platform service, and reports what the service does wrong.

It talks to services over HTTP, or over a bus as the kits do (`bus_bridge`), and imports nothing else of LUCIUS: the
message schemas are read as files.
"""
