"""Runbook definitions: their text, parsed into data, with the line of every fault. Pure."""
