"""Distributional reinforcement learning with ensembles."""
