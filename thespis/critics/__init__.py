"""Turns experience into a verdict."""
