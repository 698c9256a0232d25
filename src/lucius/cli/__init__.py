"""The command line. Modules import heavy packages late, so that small commands start fast."""
