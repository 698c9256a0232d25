"""The HTTP API: plain handlers over the use cases, one table of operations, problems as answers."""
