"""Samples that ship with LUCIUS."""
