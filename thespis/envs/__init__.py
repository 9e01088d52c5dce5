"""Worlds: compiled, on the host, and probes with known answers; one adapter or world a file."""
