"""Formulas: arrays in, arrays out; no parameters, keys or state."""
