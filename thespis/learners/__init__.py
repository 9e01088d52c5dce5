"""Changes parameters."""
