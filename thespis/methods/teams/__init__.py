"""Many agents that learn together."""
