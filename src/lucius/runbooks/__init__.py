"""Runbooks: batches of members that go through time-offset phases, stored in SQL and driven by bus messages."""
