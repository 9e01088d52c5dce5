"""Soft actor-critic whose target values vary slowly with the action."""
