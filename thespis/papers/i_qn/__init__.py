"""Iterated Q-network: beyond one-step Bellman updates in deep reinforcement learning."""
