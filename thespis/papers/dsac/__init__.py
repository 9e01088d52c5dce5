"""Distributional soft actor-critic."""
