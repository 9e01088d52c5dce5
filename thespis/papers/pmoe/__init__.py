"""Mixtures of experts as actors of soft actor-critic."""
