"""The Temporal engine: one workflow per job has the aggregate and calls the same `decide` as the outbox engine.

`workflow` is what Temporal runs and replays; `activities` access the ledger and the bus for it; `engine` is the port
that the API uses; `worker` polls; `reconciler` compares ledger and Temporal. Nothing is imported here, because the
workflow's sandbox imports this package again and must find only pure code.
"""
