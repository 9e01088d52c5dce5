"""Probe environments: tiny environments with known values; together they detect the common mistakes in RL code."""
