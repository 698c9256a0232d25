"""`lucius runbook` and `lucius batch`."""
