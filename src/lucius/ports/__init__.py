"""What the brain's hands must be able to do. Each docstring is a guarantee; `lucius.testing` holds adapters to it."""
