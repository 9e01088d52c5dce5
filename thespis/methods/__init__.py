"""Reinforcement learning methods, one file per method."""
