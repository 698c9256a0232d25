"""The benchmark: `python -m bench` from the repository's root. It knows LUCIUS by its HTTP contract alone."""
