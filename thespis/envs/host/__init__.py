"""Environments outside JAX, stepped in numpy, many side by side."""
