"""Compiled, host and logged: written once, none knows a method's name."""
