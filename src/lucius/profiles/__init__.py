"""Profiles: a whole deployment on one machine, each part a separate process, for `lucius up --profile`.

`part` is one process: started, checked for readiness, restarted, stopped. `postgres` and `temporal_server` start these
servers from their packages. `temporal` combines them with LUCIUS's own roles.
"""
