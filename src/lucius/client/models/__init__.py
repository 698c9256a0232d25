"""Typed answers."""
