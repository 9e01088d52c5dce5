"""Addressing function approximation error in actor-critic methods."""
