"""A stand-in for Azure App Configuration: key-values with labels, ETags, locks and revisions, over HTTP.

For tests and development only; docs/reference/appconfig-emulator.md states what it does and does not do.
"""
