"""The mailbox migration: a runbook, members and functions that `lucius runbook sample` runs, to be used as a template.

It ships with the package so that the sample needs nothing else; examples/mailbox-migration/README.md walks through it.
"""
