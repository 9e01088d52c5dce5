"""Model-based learners: models of dynamics, the environment that they make, and imagined experience."""
