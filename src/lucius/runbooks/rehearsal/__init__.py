"""Predictions: what a runbook will do and when (`plan`), and how it would go with failing workers (`rehearsal`)."""
