"""Where the members of a runbook come from: SQL databases and CSV, read only, within limits."""
