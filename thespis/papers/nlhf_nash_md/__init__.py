"""Nash-MD: Nash learning from human feedback."""
