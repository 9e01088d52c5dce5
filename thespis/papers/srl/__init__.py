"""Sequence reinforcement learning."""
