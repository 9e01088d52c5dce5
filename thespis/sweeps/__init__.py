"""Sweeps: a grid of settings times seeds as ordinary runs, distributed over processes by Ray."""
