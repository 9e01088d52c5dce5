"""OPPO: policies from preferences through a context: hindsight of trajectories, and the context that is preferred."""
