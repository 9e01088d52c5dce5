"""Web pages on this machine: recorded episodes step by step, and comparisons by a person."""
