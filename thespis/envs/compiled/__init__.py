"""Environments that are pure JAX functions."""
