"""Maximum entropy by an energy-based normalising flow."""
