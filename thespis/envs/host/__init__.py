"""Environments outside JAX, batched and stepped in numpy."""
