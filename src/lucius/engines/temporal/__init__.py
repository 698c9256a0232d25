"""The Temporal engine: one workflow per job holds the aggregate and asks the same `decide` as the outbox engine.

`workflow` is what Temporal runs and replays; `activities` are its hands in the ledger and on the bus; `engine` is the
port, as the API uses it; `worker` polls; `reconciler` compares ledger and Temporal. Nothing is imported here, because
the workflow's sandbox imports this package anew and must find nothing but pure code on its way.
"""
