"""Looking ahead: what a runbook will do and when (`plan`), and how it would go with workers that fail (`rehearsal`)."""
