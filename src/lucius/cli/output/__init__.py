"""Output shared by all commands: tables, formatting, live views."""
