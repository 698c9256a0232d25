"""`lucius operations`, and `cancel`, `pause`, `resume` and `redrive` of all jobs that match."""
