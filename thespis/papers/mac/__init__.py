"""Multi-level actor-critic: average reward without knowing the mixing time."""
