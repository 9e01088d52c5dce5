"""Continuous control with deep reinforcement learning."""
