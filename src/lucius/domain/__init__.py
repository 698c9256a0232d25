"""Decisions about jobs, without side effects.

No module here imports a clock, a source of randomness, a log or any I/O. Time, new ids and jitter are arguments.
"""
