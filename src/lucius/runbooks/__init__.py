"""Runbooks: batches of members taken through time-offset phases, all of it in SQL and driven by bus messages."""
