"""The mailbox migration: a runbook, members and functions that `lucius runbook sample` runs, and a newcomer copies.

It ships with the package so that the sample needs nothing else; examples/mailbox-migration/README.md walks through it.
"""
