"""A load generator: it knows LUCIUS over HTTP only, and imports nothing of it."""
