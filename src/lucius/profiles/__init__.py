"""Profiles: a whole deployment on one machine, each part a process of its own, for `lucius up --profile`.

`part` is one process: started, asked whether it is ready, restarted, stopped. `postgres` and `temporal_server` know how
these servers are started from their packages. `temporal` puts them together with LUCIUS's own roles.
"""
