"""Compiled text environments, whose observations and actions are token ids."""
