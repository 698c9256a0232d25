"""`lucius registry` and `lucius protocol`."""
