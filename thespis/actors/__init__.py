"""Turns observations into actions."""
