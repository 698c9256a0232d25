"""Every SQL statement of runbooks, one module per table."""
