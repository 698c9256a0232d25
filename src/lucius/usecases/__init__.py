"""Use cases: the operations that callers request, in terms of the domain and the ports."""
