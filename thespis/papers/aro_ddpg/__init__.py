"""Off-policy average-reward actor-critic."""
