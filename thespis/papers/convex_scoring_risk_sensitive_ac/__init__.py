"""Risk-sensitive reinforcement learning based on convex scoring functions."""
