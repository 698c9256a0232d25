"""Operators' use cases of runbooks and batches: publish, operate, retry, query."""
