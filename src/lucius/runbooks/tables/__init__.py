"""Runbooks in SQL: every statement, rows into data and back, data tables, trail and outbox."""
