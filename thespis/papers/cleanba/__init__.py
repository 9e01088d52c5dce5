"""Cleanba: a reproducible and efficient distributed reinforcement learning platform."""
