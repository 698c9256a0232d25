"""The orchestrator: facts in, guarded changes and jobs out, one transaction at a time."""
