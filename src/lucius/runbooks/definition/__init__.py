"""What a runbook says: its text, read into data, with every fault on its line. Pure."""
