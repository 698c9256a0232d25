"""`lucius submit`, `get`, `watch`, `why` and the other commands for jobs."""
