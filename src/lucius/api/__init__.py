"""The HTTP API: plain handlers over the use cases, one table of operations, problem+json errors."""
