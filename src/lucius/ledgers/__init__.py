"""Ledgers: where jobs are kept. Each file is a technology; all pass `lucius.testing.ledger_suite`."""
