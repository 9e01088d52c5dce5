"""Back to basics: RLOO."""
