"""Stores, cuts and samples experience."""
