"""`lucius protocols`, `lanes`, `tenants` and `dead-letters`."""
