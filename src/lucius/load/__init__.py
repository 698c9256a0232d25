"""A load generator: it uses LUCIUS over HTTP only, and imports nothing of it."""
