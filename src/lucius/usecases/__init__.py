"""Use cases: what a caller can ask for, in terms of the domain and the ports."""
