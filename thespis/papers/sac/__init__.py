"""Soft actor-critic with a temperature that tunes itself."""
