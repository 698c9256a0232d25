"""Behaviour suites for ledgers, buses and engines, and what they are made of.

A suite is a class of async tests written against a port alone. An adapter proves itself by subclassing it in a test
module and supplying the fixtures that the suite names; what an adapter cannot do is said by a flag on the subclass, so
nothing is passed over in silence.
"""
