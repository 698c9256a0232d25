"""The brain: everything that decides, and nothing that touches the world.

No module in here imports a clock, a source of randomness, a log or any I/O. Time, fresh ids and jitter are arguments.
"""
