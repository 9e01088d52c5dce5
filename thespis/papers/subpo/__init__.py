"""Submodular reinforcement learning."""
