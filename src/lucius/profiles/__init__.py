"""Profiles: a whole deployment on one machine, each part a separate process, for `lucius up --profile`.

`part` is one process: started, checked for readiness, restarted, stopped. `postgres`, `nats_server` and
`temporal_server` plan these servers from their packages, `deployment` runs them with LUCIUS's own roles, and `profile`
says which profile has which of them.
"""
