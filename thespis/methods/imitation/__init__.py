"""Methods that learn to act as somebody else does."""
