"""Sources of a runbook's members: SQL databases and CSV, read-only and within limits."""
