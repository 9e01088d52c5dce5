"""Soft actor-critic as first published, with a state value."""
