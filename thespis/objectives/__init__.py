"""Formulas as pure functions of arrays: no parameters, keys or state."""
