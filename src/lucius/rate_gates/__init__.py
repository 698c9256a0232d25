"""Rate gates: what all API processes ask before they accept a tenant's command."""
