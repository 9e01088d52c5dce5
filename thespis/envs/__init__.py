"""Environments: compiled (JAX), host (Python), games, text, and probes with known values; one environment per file."""
