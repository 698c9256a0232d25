"""Conformance suites for ledgers, buses and engines, and their parts.

A suite is a class of async tests written against a port. To test an adapter, subclass the suite in a test module and
provide its fixtures; flags on the subclass state what the adapter cannot do, so that nothing is skipped silently.
"""
