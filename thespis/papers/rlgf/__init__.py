"""RLGF: reinforcement learning with guided feedback."""
