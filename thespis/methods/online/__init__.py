"""Methods that learn from the world they act in."""
